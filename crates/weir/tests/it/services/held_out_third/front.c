// A service that asks another process over TCP for each request, a connection for each; the other one takes 22 ms, and is the limit: front PORT.
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char QUESTION[] = "GET /price HTTP/1.1\r\nHost: prices\r\n\r\n";
static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1.99\n";
// Where the other one listens; in the other one itself, port 0.
static struct sockaddr_in behind;

static int ask(int *other) {
    char buffer[4096];
    if (*other < 0) {
        *other = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(*other, (struct sockaddr *)&behind, sizeof behind)) return 0;
    }
    return write(*other, QUESTION, sizeof QUESTION - 1) > 0 && read(*other, buffer, sizeof buffer) > 0;
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument, other = -1;
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0) {
        if (behind.sin_port) {
            if (!ask(&other)) break;
        } else {
            struct timespec span = {.tv_nsec = 22000000};
            nanosleep(&span, NULL);
        }
        if (write(fd, ANSWER, sizeof ANSWER - 1) < 0) break;
    }
    if (other >= 0) close(other);
    close(fd);
    return NULL;
}

static int listening(int port, struct sockaddr_in *at) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    socklen_t length = sizeof *at;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)at, sizeof *at) || listen(listener, 512)) exit(1);
    getsockname(listener, (struct sockaddr *)at, &length);
    return listener;
}

int main(int argc, char **argv) {
    struct sockaddr_in here;
    signal(SIGPIPE, SIG_IGN);
    int listener = listening(0, &behind);
    if (fork() == 0) {
        // The other one; it ends with the first.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        behind.sin_port = 0;
    } else {
        close(listener);
        listener = listening(atoi(argv[argc - 1]), &here);
    }
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && !pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) pthread_detach(thread);
    }
}
