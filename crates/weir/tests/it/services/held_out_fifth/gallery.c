// A thread for each connection, which reads a painting of 2 MiB from disk (O_DIRECT, so never from the page cache) and answers with a digest; the disk is the limit: gallery PORT.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 2 << 20, PAINTINGS = 128 };
static int cellar;

static unsigned char *canvas(void) {
    return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument, used = 0;
    unsigned seed = 7 * fd;
    char request[8192], body[64], answer[256];
    unsigned char *painting = canvas();
    while (painting != MAP_FAILED) {
        ssize_t count = read(fd, request + used, sizeof request - 1 - used);
        if (count <= 0) break;
        used += count;
        request[used] = 0;
        // The blank line ends a request; none has a body, and nobody sends the next one before the answer.
        if (!strstr(request, "\r\n\r\n")) continue;
        used = 0;
        int which = rand_r(&seed) % PAINTINGS;
        if (pread(cellar, painting, SIZE, (off_t)which * SIZE) != SIZE) break;
        int length = snprintf(body, sizeof body, "painting %d: %02x%02x\n", which, painting[0], painting[SIZE - 1]);
        length = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, body);
        if (write(fd, answer, length) != length) break;
    }
    if (painting != MAP_FAILED) munmap(painting, SIZE);
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    char path[] = "/var/tmp/gallery.XXXXXX";
    cellar = mkostemp(path, O_DIRECT);
    unsigned char *painting = canvas();
    if (cellar < 0 || painting == MAP_FAILED) return 1;
    unlink(path);
    uint64_t noise = 88172645463325252ull;
    for (int i = 0; i < SIZE; i++) noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17, painting[i] = noise;
    for (int i = 0; i < PAINTINGS; i++) {
        painting[0] = i;
        if (pwrite(cellar, painting, SIZE, (off_t)i * SIZE) != SIZE) return 1;
    }
    fsync(cellar);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 512)) return 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) close(fd);
        else pthread_detach(thread);
    }
}
