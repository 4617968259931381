// One acceptor that lets one connection through every 12 ms, closes it, and has room for three to wait; the accept queue is the limit: turnstile PORT.
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nwelcome";

// Reads up to the blank line; not when the client leaves or is silent.
static int request(int fd) {
    char text[8192];
    int used = 0;
    while (used < (int)sizeof text - 1) {
        ssize_t count = read(fd, text + used, sizeof text - 1 - used);
        if (count <= 0) return 0;
        used += count;
        text[used] = 0;
        if (strstr(text, "\r\n\r\n")) return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    // With a backlog of 2, Linux lets three wait.
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 2)) return 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        // A client that says nothing must not keep the others out.
        struct timeval patience = {.tv_usec = 200000};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (request(fd)) {
            struct timespec turn = {.tv_nsec = 12000000};
            nanosleep(&turn, NULL);
            if (write(fd, ANSWER, sizeof ANSWER - 1) < 0) { /* The client has left. */ }
        }
        close(fd);
    }
}
