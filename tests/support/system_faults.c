/* Calls of the system that fail on request, for files below one folder: loaded with LD_PRELOAD, armed by fault_arm. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char armed_call[32], armed_folder[2048];
static int armed_errno, armed_after, armed_sticky, armed;
static const char *calls[] = {"open", "write", "read", "fsync", "close", "rename", "link", "unlink", "mkdir", "opendir", "stat"};
enum { KINDS = sizeof calls / sizeof *calls };
static int seen[KINDS];

/* Let the call number `after` of a kind, and with `sticky` every later one, fail with an error; count those of each kind.
   The calls are those for files below the folder; an empty folder disarms, and leaves the counts. */
void fault_arm(const char *call, const char *folder, int number, int after, int sticky) {
    armed = 0;
    if (!*folder) return;
    strncpy(armed_folder, folder, sizeof armed_folder - 1);
    strncpy(armed_call, call, sizeof armed_call - 1);
    armed_errno = number;
    armed_after = after;
    armed_sticky = sticky;
    memset(seen, 0, sizeof seen);
    armed = 1;
}

static int kind_of(const char *call) {
    int kind = 0;
    while (kind < KINDS && strcmp(calls[kind], call)) kind++;
    return kind;
}

int fault_seen(const char *call) { return seen[kind_of(call)]; }

static int fails(const char *call, const char *path) {
    if (!armed || !path || !strstr(path, armed_folder)) return 0;
    int now = __sync_fetch_and_add(&seen[kind_of(call)], 1);
    if (strcmp(call, armed_call)) return 0;
    if (armed_sticky ? now < armed_after : now != armed_after) return 0;
    errno = armed_errno;
    return 1;
}

static int fd_fails(const char *call, int fd) {
    char link[64], path[4096];
    if (!armed) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fails(call, path);
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list words; va_start(words, flags); mode_t mode = va_arg(words, int); va_end(words); \
        REAL(int, name, const char *, int, ...); \
        return fails("open", path) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return fd_fails("write", fd) ? -1 : real(fd, data, size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return fd_fails("write", fd) ? -1 : real(fd, data, size, at);
}
ssize_t read(int fd, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t);
    return fd_fails("read", fd) ? -1 : real(fd, data, size);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t);
    return fd_fails("read", fd) ? -1 : real(fd, data, size, at);
}
int fsync(int fd) {
    REAL(int, fsync, int);
    return fd_fails("fsync", fd) ? -1 : real(fd);
}
int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return fd_fails("fsync", fd) ? -1 : real(fd);
}
int close(int fd) { /* the file is closed also where that reports an error, as on Linux */
    REAL(int, close, int);
    int failed = fd_fails("close", fd), number = errno, result = real(fd);
    if (failed) errno = number;
    return failed ? -1 : result;
}
int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    return fails("rename", new) ? -1 : real(old, new);
}
int link(const char *old, const char *new) {
    REAL(int, link, const char *, const char *);
    return fails("link", new) ? -1 : real(old, new);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return fails("unlink", path) ? -1 : real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return fails("mkdir", path) ? -1 : real(path, mode);
}
DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    return fails("opendir", path) ? NULL : real(path);
}
int stat64(const char *path, struct stat64 *status) {
    REAL(int, stat64, const char *, struct stat64 *);
    return fails("stat", path) ? -1 : real(path, status);
}
int stat(const char *path, struct stat *status) {
    REAL(int, stat, const char *, struct stat *);
    return fails("stat", path) ? -1 : real(path, status);
}
