// A thread for each connection, and one thermometer behind a mutex that is held for the 9 ms until it has measured; the mutex is the limit: thermometer PORT.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t bus = PTHREAD_MUTEX_INITIALIZER;
static long measured;

// Only one at a time may use the bus; nothing is computed meanwhile.
static long measure(void) {
    pthread_mutex_lock(&bus);
    poll(NULL, 0, 9);
    long number = ++measured;
    pthread_mutex_unlock(&bus);
    return number;
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument, used = 0;
    char request[8192], body[64], answer[256];
    for (;;) {
        ssize_t count = read(fd, request + used, sizeof request - 1 - used);
        if (count <= 0) break;
        used += count;
        request[used] = 0;
        // The blank line ends a request; none has a body, and nobody sends the next one before the answer.
        if (!strstr(request, "\r\n\r\n")) continue;
        used = 0;
        int length = snprintf(body, sizeof body, "21.5 degrees, measurement %ld\n", measure());
        length = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, body);
        if (write(fd, answer, length) != length) break;
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 256)) return 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) close(fd);
        else pthread_detach(thread);
    }
}
