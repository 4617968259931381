// One thread that serves all connections with epoll and computes 1 ms for each request: one_thread PORT.
#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef ROUNDS
#define ROUNDS 600000
#endif
static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
static volatile uint64_t sink;

static void compute(void) {
    uint64_t x = 88172645463325252ull;
    for (int i = 0; i < ROUNDS; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    }
    sink = x;
}

int main(int argc, char **argv) {
    (void)argc;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 128)) return 1;
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[64];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            char buffer[4096];
            if (read(fd, buffer, sizeof buffer) <= 0) {
                close(fd);
                continue;
            }
            compute();
            if (write(fd, ANSWER, sizeof ANSWER - 1) < 0) close(fd);
        }
    }
}
