/* SPDX-License-Identifier: Apache-2.0
 *
 * shim_io.c - an LD_PRELOAD library that makes the Nth input or output call of a process go wrong,
 * so that tests meet every failure at every place, and the same one each time.
 *
 * FP8_FAULT_CALL  kinds that count, as in pwrite,fsync: open stat read pread, which alter nothing;
 *                 create write pwrite fsync ftruncate fallocate copy_file_range rename link mkdir
 *                 unlink setxattr; "change" = these, "any" = all
 *
 * FP8_FAULT_AT    which of them goes wrong, from 1; 0 or unset = none
 *
 * FP8_FAULT_DO    how: an error such as EIO (see the table below) and nothing is done; "eof" = 0
 *                 bytes; "short" = half of the bytes; "kill" = the process dies before the call;
 *                 "torn" = half of the bytes, then it dies; "killafter" = it dies after the call
 *
 * FP8_FAULT_STICKY=1 every later call that counts goes wrong as well
 *
 * FP8_FAULT_PATH  only calls on files whose path contains this text count
 *
 * FP8_FAULT_LOG   a file that gets the number of calls that counted, at exit
 *
 * Death is SIGKILL: no handler, no flush. Descriptors 0 to 2 never count. Calls that the C library
 * makes inside itself (stdio) are not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

typedef enum action { PASS, ERROR, END, SHORT, KILL, TORN, KILL_AFTER } action;

static const struct {
    const char *name;
    int value;
} errors[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},         {"EINTR", EINTR},
    {"EACCES", EACCES}, {"EMFILE", EMFILE}, {"ENOENT", ENOENT},         {"EXDEV", EXDEV},
    {"EROFS", EROFS},   {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP},
};

static const struct {
    const char *name;
    action what;
} deeds[] = {
    {"eof", END}, {"short", SHORT}, {"kill", KILL}, {"torn", TORN}, {"killafter", KILL_AFTER},
};

/* Kinds that alter nothing; all others belong to "change". */
static const char *const harmless[] = {"open", "stat", "read", "pread"};

static atomic_long counted;

static bool is_harmless(const char *kind)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (!strcmp(kind, harmless[i]))
            return true;
    return false;
}

/* Whether `kind` is one of the comma-separated names. */
static bool listed(const char *names, const char *kind)
{
    size_t n = strlen(kind);
    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',')
        if (!strncmp(p, kind, n) && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

static bool kind_counts(const char *kind)
{
    const char *names = getenv("FP8_FAULT_CALL");
    if (!names)
        return false;
    return listed(names, kind) || listed(names, "any") ||
           (listed(names, "change") && !is_harmless(kind));
}

static bool path_counts(const char *path)
{
    const char *text = getenv("FP8_FAULT_PATH");
    return !text || strstr(path, text);
}

static bool fd_counts(int fd)
{
    char link_path[64], path[4096];
    if (fd <= 2)
        return false;
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link_path, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return path_counts(path);
}

/* What FP8_FAULT_DO says; sets errno for an error. */
static action deed(void)
{
    const char *text = getenv("FP8_FAULT_DO");
    for (size_t i = 0; text && i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(text, deeds[i].name))
            return deeds[i].what;
    errno = EIO;
    for (size_t i = 0; text && i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(text, errors[i].name))
            errno = errors[i].value;
    return ERROR;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Counts a call and says what is to become of it. */
static action judge(const char *kind, bool counts)
{
    if (!counts || !kind_counts(kind))
        return PASS;
    const char *at = getenv("FP8_FAULT_AT");
    long nth = at ? atol(at) : 0, now = atomic_fetch_add(&counted, 1) + 1;
    if (nth <= 0 || now < nth || (now > nth && !getenv("FP8_FAULT_STICKY")))
        return PASS;
    action what = deed();
    if (what == KILL)
        die();
    return what;
}

static void die_after(action what)
{
    if (what == KILL_AFTER || what == TORN)
        die();
}

__attribute__((destructor)) static void write_log(void)
{
    const char *path = getenv("FP8_FAULT_LOG");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", atomic_load(&counted));
    fclose(file);
}

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        _exit(126);
    return found;
}

/* A call without a size: it fails or is done. */
#define FUNCTION(name, kind, counts, params, args)     \
    int name params;                                   \
    int name params                                    \
    {                                                  \
        action what = judge(kind, counts);             \
        if (what == ERROR)                             \
            return -1;                                 \
        int result = ((int(*) params)real(#name))args; \
        die_after(what);                               \
        return result;                                 \
    }

/* A call that moves `n` bytes and may do with fewer. */
#define TRANSFER(name, kind, counts, params, args)             \
    ssize_t name params;                                       \
    ssize_t name params                                        \
    {                                                          \
        action what = judge(kind, counts);                     \
        if (what == ERROR)                                     \
            return -1;                                         \
        if (what == END)                                       \
            return 0;                                          \
        if ((what == SHORT || what == TORN) && n > 1)          \
            n /= 2;                                            \
        ssize_t result = ((ssize_t(*) params)real(#name))args; \
        die_after(what);                                       \
        return result;                                         \
    }

TRANSFER(read, "read", fd_counts(fd), (int fd, void *p, size_t n), (fd, p, n))
TRANSFER(pread, "pread", fd_counts(fd), (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
TRANSFER(pread64, "pread", fd_counts(fd), (int fd, void *p, size_t n, off64_t at), (fd, p, n, at))
TRANSFER(write, "write", fd_counts(fd), (int fd, const void *p, size_t n), (fd, p, n))
TRANSFER(pwrite, "pwrite", fd_counts(fd), (int fd, const void *p, size_t n, off_t at),
         (fd, p, n, at))
TRANSFER(pwrite64, "pwrite", fd_counts(fd), (int fd, const void *p, size_t n, off64_t at),
         (fd, p, n, at))
TRANSFER(copy_file_range, "copy_file_range", fd_counts(fd),
         (int from, off64_t *a, int fd, off64_t *b, size_t n, unsigned flags),
         (from, a, fd, b, n, flags))

FUNCTION(fstat, "stat", fd_counts(fd), (int fd, struct stat *p), (fd, p))
FUNCTION(fsync, "fsync", fd_counts(fd), (int fd), (fd))
FUNCTION(fdatasync, "fsync", fd_counts(fd), (int fd), (fd))
FUNCTION(ftruncate, "ftruncate", fd_counts(fd), (int fd, off_t n), (fd, n))
FUNCTION(ftruncate64, "ftruncate", fd_counts(fd), (int fd, off64_t n), (fd, n))
FUNCTION(fallocate, "fallocate", fd_counts(fd), (int fd, int mode, off_t at, off_t n),
         (fd, mode, at, n))
FUNCTION(fallocate64, "fallocate", fd_counts(fd), (int fd, int mode, off64_t at, off64_t n),
         (fd, mode, at, n))
FUNCTION(rename, "rename", path_counts(b), (const char *a, const char *b), (a, b))
FUNCTION(renameat, "rename", path_counts(b), (int x, const char *a, int y, const char *b),
         (x, a, y, b))
FUNCTION(renameat2, "rename", path_counts(b),
         (int x, const char *a, int y, const char *b, unsigned flags), (x, a, y, b, flags))
FUNCTION(link, "link", path_counts(b), (const char *a, const char *b), (a, b))
FUNCTION(setxattr, "setxattr", path_counts(a),
         (const char *a, const char *b, const void *p, size_t n, int flags), (a, b, p, n, flags))
FUNCTION(mkdir, "mkdir", path_counts(a), (const char *a, mode_t mode), (a, mode))
FUNCTION(unlink, "unlink", path_counts(a), (const char *a), (a))
FUNCTION(unlinkat, "unlink", path_counts(a), (int x, const char *a, int flags), (x, a, flags))
FUNCTION(rmdir, "unlink", path_counts(a), (const char *a), (a))

/* Returns its error instead of setting errno. */
#define POSIX_FALLOCATE(name, offset)                                        \
    int name(int fd, offset at, offset n);                                   \
    int name(int fd, offset at, offset n)                                    \
    {                                                                        \
        action what = judge("fallocate", fd_counts(fd));                     \
        if (what == ERROR)                                                   \
            return errno;                                                    \
        int result = ((int (*)(int, offset, offset))real(#name))(fd, at, n); \
        die_after(what);                                                     \
        return result;                                                       \
    }

POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

/* An open that may make a file has one argument more. */
static int open_with(const char *name, int at, const char *path, int flags, va_list args)
{
    bool makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = makes ? (mode_t)va_arg(args, unsigned) : 0;
    action what = judge(makes ? "create" : "open", path_counts(path));
    if (what == ERROR)
        return -1;
    int fd = ((int (*)(int, const char *, int, ...))real(name))(at, path, flags, mode);
    die_after(what);
    return fd;
}

#define OPEN(name, real_name, params, at)                     \
    int name params;                                          \
    int name params                                           \
    {                                                         \
        va_list args;                                         \
        va_start(args, flags);                                \
        int fd = open_with(real_name, at, path, flags, args); \
        va_end(args);                                         \
        return fd;                                            \
    }

OPEN(open, "openat", (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, "openat64", (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, "openat", (int x, const char *path, int flags, ...), x)
OPEN(openat64, "openat64", (int x, const char *path, int flags, ...), x)
