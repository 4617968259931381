// A thread for each connection, which prints the answer line by line on a line-buffered stream; Nagle and the client's delayed ACK are the limit: telegram PORT.
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument, used = 0;
    char request[8192];
    FILE *out = fdopen(dup(fd), "w");
    // Each line is a write of its own, and TCP_NODELAY was forgotten.
    if (out) setvbuf(out, NULL, _IOLBF, 1024);
    while (out) {
        ssize_t count = read(fd, request + used, sizeof request - 1 - used);
        if (count <= 0) break;
        used += count;
        request[used] = 0;
        // The blank line ends a request; none has a body, and nobody sends the next one before the answer.
        if (!strstr(request, "\r\n\r\n")) continue;
        used = 0;
        fprintf(out, "HTTP/1.1 200 OK\r\n");
        fprintf(out, "Content-Type: text/plain\r\n");
        fprintf(out, "Content-Length: 14\r\n\r\n");
        fprintf(out, "arriving STOP\n");
        if (ferror(out)) break;
    }
    if (out) fclose(out);
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 512)) return 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) close(fd);
        else pthread_detach(thread);
    }
}
