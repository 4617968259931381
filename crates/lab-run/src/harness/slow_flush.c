/* Makes a slower disk of a fast one: fsync and fdatasync take WEIR_FLUSH_DELAY_US longer than they do.
 *
 * Preloaded into a database that the lab started itself. The real call comes first: what it promises still holds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static struct timespec delay;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

/* Before main: servers rename themselves in the memory of their environment. */
__attribute__((constructor)) static void prepare(void) {
    const char *text = getenv("WEIR_FLUSH_DELAY_US");
    long long us = text ? atoll(text) : 0;
    delay.tv_sec = us / 1000000;
    delay.tv_nsec = us % 1000000 * 1000;
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
}

static int late(int result) {
    int cause = errno;
    struct timespec left = delay;
    /* Servers signal their workers all the time; a disk does not get faster by that. */
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
    errno = cause;
    return result;
}

int fsync(int file) {
    return late(real_fsync(file));
}

int fdatasync(int file) {
    return late(real_fdatasync(file));
}
