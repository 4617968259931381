// One thread that for each request writes 8 KiB to a file and waits for fsync, one request after another; the disk is the limit: audit PORT.
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECORD = 8192, RECORDS = 32768, CONNECTIONS = 1024 };
static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nwritten\n";
static struct pollfd polled[CONNECTIONS];

// In TMPDIR, else in /var/tmp, which (other than /tmp) is not in memory. Without a name: nothing is left behind.
static int journal(void) {
    char path[4096];
    const char *directory = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/audit.XXXXXX", directory ? directory : "/var/tmp");
    int file = mkstemp(path);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    unlink(path);
    return file;
}

// After 256 MiB the file starts over.
static int append(int file) {
    static char record[RECORD];
    static long number;
    memset(record, 'a' + number % 26, sizeof record);
    off_t at = number++ % RECORDS * (off_t)RECORD;
    return pwrite(file, record, sizeof record, at) == RECORD && fsync(file) == 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    int file = journal(), listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, used = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 256)) return 1;
    polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    while (poll(polled, used, -1) > 0) {
        // Backwards, so that the last one can take the place of one that has left.
        for (int i = used - 1; i > 0; i--) {
            char buffer[4096];
            if (!polled[i].revents) continue;
            if (read(polled[i].fd, buffer, sizeof buffer) <= 0 || !append(file) || write(polled[i].fd, ANSWER, sizeof ANSWER - 1) < 0) {
                close(polled[i].fd);
                polled[i] = polled[--used];
            }
        }
        if (polled[0].revents) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0 && used == CONNECTIONS) close(fd);
            else if (fd >= 0) polled[used++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    return 1;
}
