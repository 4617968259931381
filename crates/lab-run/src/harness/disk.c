/* Makes a worse disk of a good one.
 *
 * WEIR_FLUSH_DELAY_US  fsync and fdatasync take so much longer than they do
 * WEIR_DISK_SWITCH     a file of two bytes that may change at any time: if the first is not 0, writes to files fail, as on a full
 *                      disk; if the second is not 0, flushes fail
 *
 * Preloaded into a process that the lab started itself. A delayed call comes first: what it promises still holds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct timespec delay;
static const volatile char *faults;

#define REAL(type, name, ...) static type (*real_##name)(__VA_ARGS__)
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
REAL(int, fallocate64, int, int, off64_t, off64_t);
REAL(int, posix_fallocate64, int, off64_t, off64_t);

/* Before main: servers rename themselves in the memory of their environment. */
__attribute__((constructor)) static void prepare(void) {
#define FIND(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)
    FIND(fsync), FIND(fdatasync), FIND(write), FIND(writev), FIND(pwrite), FIND(pwrite64);
    FIND(pwritev), FIND(pwritev64), FIND(fallocate64), FIND(posix_fallocate64);
    const char *text = getenv("WEIR_FLUSH_DELAY_US");
    long long us = text ? atoll(text) : 0;
    delay.tv_sec = us / 1000000;
    delay.tv_nsec = us % 1000000 * 1000;
    const char *path = getenv("WEIR_DISK_SWITCH");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *bytes = mmap(NULL, 2, PROT_READ, MAP_SHARED, file, 0);
        faults = bytes == MAP_FAILED ? NULL : bytes;
        close(file);
    }
}

/* Whether what grows a file has to fail. What is said on standard error and to sockets does not count. */
static int is_full(int file) {
    struct stat stat;
    if (!faults || !faults[0] || file == STDERR_FILENO || fstat(file, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        return 0;
    }
    errno = ENOSPC;
    return 1;
}

static int flush(int (*real)(int), int file) {
    if (faults && faults[1]) {
        errno = EIO;
        return -1;
    }
    int result = real(file), cause = errno;
    struct timespec left = delay;
    /* Servers signal their workers all the time; a disk does not get faster by that. */
    while ((left.tv_sec || left.tv_nsec) && nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
    errno = cause;
    return result;
}

int fsync(int file) { return flush(real_fsync, file); }
int fdatasync(int file) { return flush(real_fdatasync, file); }

ssize_t write(int file, const void *bytes, size_t length) {
    return is_full(file) ? -1 : real_write(file, bytes, length);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    return is_full(file) ? -1 : real_writev(file, parts, count);
}
ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) {
    return is_full(file) ? -1 : real_pwrite(file, bytes, length, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
    return is_full(file) ? -1 : real_pwrite64(file, bytes, length, at);
}
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    return is_full(file) ? -1 : real_pwritev(file, parts, count, at);
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    return is_full(file) ? -1 : real_pwritev64(file, parts, count, at);
}
int fallocate64(int file, int mode, off64_t at, off64_t length) {
    return is_full(file) ? -1 : real_fallocate64(file, mode, at, length);
}
int posix_fallocate64(int file, off64_t at, off64_t length) {
    return is_full(file) ? ENOSPC : real_posix_fallocate64(file, at, length);
}
