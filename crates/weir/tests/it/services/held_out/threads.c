// A thread for each connection, and a limit: threads LIMIT PORT, with LIMIT one of mutex, partly, delay, bandwidth.
// mutex: a mutex is held for 3 ms. partly: the same after 9 ms without it. delay: each request sleeps for 25 ms. bandwidth: answers of 200 kB leave at 2 MB/s a connection.
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *limit;
static size_t length = 5;
static char *answer;
static size_t answer_length;

static void pass(long ms) {
    struct timespec span = {.tv_nsec = ms * 1000000};
    nanosleep(&span, NULL);
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    unsigned rate = 2000000;
    if (*limit == 'b') setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0) {
        if (*limit == 'p') pass(9);
        if (*limit == 'm' || *limit == 'p') {
            pthread_mutex_lock(&mutex);
            pass(3);
            pthread_mutex_unlock(&mutex);
        } else if (*limit == 'd') {
            pass(25);
        }
        size_t sent = 0;
        while (sent < answer_length) {
            ssize_t count = write(fd, answer + sent, answer_length - sent);
            if (count <= 0) break;
            sent += count;
        }
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    limit = argv[1];
    if (*limit == 'b') length = 200000;
    answer = malloc(length + 200);
    answer_length = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", length);
    memset(answer + answer_length, 'x', length);
    answer_length += length;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 128)) return 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && !pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) pthread_detach(thread);
    }
}
