/* Records what a process does to the files of one directory, or lets the N-th call fail.
 *
 * WEIR_DISK_DIR      the directory; calls on other files pass
 * WEIR_DISK_RECORD   where to append what was done, and the beginnings of answers sent to sockets
 * WEIR_DISK_FAIL     "N:ERRNO:COUNT:HOW": COUNT calls from the N-th on fail; with HOW 1, writes write half before that; with
 *                    HOW 2 only those count that give a file a name; with HOW 3 only renames count, and they are done all the
 *                    same; with ERRNO 0 the process is killed before the N-th
 * WEIR_DISK_UNREADABLE  "NAME:OFFSET": no read gets the 4 KiB from OFFSET on of files whose path ends with NAME
 *
 * A record is a header and two strings. Calls are serialized, so that the order recorded is the order done. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 65536 };

struct header {
    uint32_t kind, name_bytes, data_bytes, unused;
    uint64_t inode, offset;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static const char *directory;
static int record = -1;
static long fail_from = -1, fail_errno, fail_count, fail_how, calls;
static const char *unreadable;
static char tracked[FILES], is_unreadable[FILES];

#define REAL(type, name, ...) static type (*real_##name)(__VA_ARGS__)
REAL(int, open64, const char *, int, ...);
REAL(int, close, int);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pread64, int, void *, size_t, off64_t);
REAL(ssize_t, read, int, void *, size_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, ftruncate64, int, off64_t);
REAL(int, rename, const char *, const char *);
REAL(int, unlink, const char *);
REAL(ssize_t, send, int, const void *, size_t, int);
REAL(ssize_t, writev, int, const struct iovec *, int);

__attribute__((constructor)) static void prepare(void) {
#define FIND(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)
    FIND(open64), FIND(close), FIND(pwrite64), FIND(write), FIND(fsync), FIND(fdatasync), FIND(ftruncate64);
    FIND(rename), FIND(unlink), FIND(send), FIND(writev), FIND(pread64), FIND(read);
    unreadable = getenv("WEIR_DISK_UNREADABLE");
    directory = getenv("WEIR_DISK_DIR");
    const char *path = getenv("WEIR_DISK_RECORD");
    if (path) {
        record = real_open64(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    const char *fail = getenv("WEIR_DISK_FAIL");
    if (fail) {
        char *next;
        fail_from = strtol(fail, &next, 10);
        fail_errno = strtol(next + 1, &next, 10);
        fail_count = strtol(next + 1, &next, 10);
        fail_how = strtol(next + 1, &next, 10);
    }
}

static int is_inside(const char *path) {
    return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static void note(uint32_t kind, uint64_t inode, uint64_t offset, const char *name, const void *data, size_t bytes) {
    if (record < 0) {
        return;
    }
    int cause = errno;
    struct header header = {kind, name ? strlen(name) : 0, bytes, 0, inode, offset};
    real_write(record, &header, sizeof header);
    real_write(record, name, header.name_bytes);
    real_write(record, data, bytes);
    errno = cause;
}

static uint64_t inode_of(int file) {
    struct stat64 stat;
    return fstat64(file, &stat) == 0 ? stat.st_ino : 0;
}

static int is_directory(int file) {
    struct stat64 stat;
    return fstat64(file, &stat) == 0 && S_ISDIR(stat.st_mode);
}

enum { CONTENT, NAME, RENAME };

/* Whether this call, on what is in a file or on its name, is to fail. */
static int fails(int kind) {
    if ((fail_how == 2 && kind == CONTENT) || (fail_how == 3 && kind != RENAME)) {
        return 0;
    }
    calls++;
    if (fail_from < 0 || calls < fail_from || calls - fail_from >= fail_count) {
        return 0;
    }
    if (fail_errno == 0) {
        raise(SIGKILL);
    }
    errno = fail_errno;
    return 1;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!is_inside(path)) {
        return real_open64(path, flags, mode);
    }
    pthread_mutex_lock(&turn);
    struct stat64 before;
    int is_new = stat64(path, &before) != 0;
    int file = fails(is_new ? NAME : CONTENT) ? -1 : real_open64(path, flags, mode);
    if (file >= 0 && file < FILES) {
        tracked[file] = 1;
        const char *colon = unreadable ? strchr(unreadable, ':') : NULL;
        size_t name_bytes = colon ? colon - unreadable : 0, path_bytes = strlen(path);
        is_unreadable[file] = colon && path_bytes >= name_bytes &&
                              strncmp(path + path_bytes - name_bytes, unreadable, name_bytes) == 0;
        if (is_new) {
            note('C', inode_of(file), 0, path, NULL, 0);
        } else if (flags & O_TRUNC) {
            note('T', inode_of(file), 0, NULL, NULL, 0);
        }
    }
    pthread_mutex_unlock(&turn);
    return file;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}

int close(int file) {
    if (file >= 0 && file < FILES) {
        tracked[file] = is_unreadable[file] = 0;
    }
    return real_close(file);
}

ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) {
    if (file < 0 || file >= FILES || !tracked[file]) {
        return real_pwrite64(file, data, bytes, offset);
    }
    pthread_mutex_lock(&turn);
    ssize_t done = -1;
    if (fails(CONTENT)) {
        if (fail_how == 1 && bytes > 1) {
            int cause = errno;
            real_pwrite64(file, data, bytes / 2, offset);
            errno = cause;
        }
    } else {
        done = real_pwrite64(file, data, bytes, offset);
    }
    if (done > 0) {
        note('W', inode_of(file), offset, NULL, data, done);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t write(int file, const void *data, size_t bytes) {
    if (file < 0 || file >= FILES || !tracked[file]) {
        return real_write(file, data, bytes);
    }
    pthread_mutex_lock(&turn);
    ssize_t done = fails(CONTENT) ? -1 : real_write(file, data, bytes);
    if (done > 0) {
        note('W', inode_of(file), lseek64(file, 0, SEEK_CUR) - done, NULL, data, done);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

/* How many of `bytes` at `offset` can be read; 0 sets the error. */
static size_t readable(int file, size_t bytes, off64_t offset) {
    if (file < 0 || file >= FILES || !is_unreadable[file]) {
        return bytes;
    }
    off64_t from = atoll(strchr(unreadable, ':') + 1);
    if (offset + (off64_t)bytes <= from || offset >= from + 4096) {
        return bytes;
    }
    errno = EIO;
    return offset < from ? from - offset : 0;
}

ssize_t pread64(int file, void *data, size_t bytes, off64_t offset) {
    size_t most = readable(file, bytes, offset);
    return most == 0 && bytes > 0 ? -1 : real_pread64(file, data, most, offset);
}

ssize_t read(int file, void *data, size_t bytes) {
    size_t most = readable(file, bytes, lseek64(file, 0, SEEK_CUR));
    return most == 0 && bytes > 0 ? -1 : real_read(file, data, most);
}

static int flush(int file, int (*real)(int)) {
    if (file < 0 || file >= FILES || !tracked[file]) {
        return real(file);
    }
    pthread_mutex_lock(&turn);
    int done = fails(CONTENT) ? -1 : real(file);
    if (done == 0) {
        note(is_directory(file) ? 'D' : 'F', inode_of(file), 0, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int fsync(int file) {
    return flush(file, real_fsync);
}

int fdatasync(int file) {
    return flush(file, real_fdatasync);
}

int ftruncate64(int file, off64_t bytes) {
    if (file < 0 || file >= FILES || !tracked[file]) {
        return real_ftruncate64(file, bytes);
    }
    pthread_mutex_lock(&turn);
    int done = fails(CONTENT) ? -1 : real_ftruncate64(file, bytes);
    if (done == 0) {
        note('T', inode_of(file), bytes, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int rename(const char *from, const char *to) {
    if (!is_inside(from)) {
        return real_rename(from, to);
    }
    pthread_mutex_lock(&turn);
    int is_failing = fails(RENAME), cause = errno;
    int done = is_failing && fail_how != 3 ? -1 : real_rename(from, to);
    if (done == 0) {
        note('R', 0, 0, from, to, strlen(to));
    }
    if (is_failing) {
        errno = cause;
        done = -1;
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int unlink(const char *path) {
    if (!is_inside(path)) {
        return real_unlink(path);
    }
    pthread_mutex_lock(&turn);
    int done = real_unlink(path);
    if (done == 0) {
        note('U', 0, 0, path, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

/* Before it is sent: who has it may act on it. */
static void answers(int socket, const void *data, size_t bytes) {
    static const char begin[] = "HTTP/1.1 2";
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    if (record < 0 || bytes < sizeof begin || memcmp(data, begin, sizeof begin - 1) != 0) {
        return;
    }
    if (getpeername(socket, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET) {
        pthread_mutex_lock(&turn);
        note('A', ntohs(peer.sin_port), 0, NULL, NULL, 0);
        pthread_mutex_unlock(&turn);
    }
}

ssize_t send(int socket, const void *data, size_t bytes, int flags) {
    answers(socket, data, bytes);
    return real_send(socket, data, bytes, flags);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (count > 0) {
        answers(file, parts[0].iov_base, parts[0].iov_len);
    }
    return real_writev(file, parts, count);
}
