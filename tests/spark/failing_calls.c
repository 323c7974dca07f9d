/* Preloaded: calls about files whose path holds CULM_FAULT_PATH fail with CULM_FAULT_ERRNO: all of
   them, or one, if CULM_FAULT_ONCE names a file, which is made then.  They are reads, or writes if
   CULM_FAULT_WRITES is set: then names that are changed are looked at, too. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails_at(const char *path, int writes)
{
    const char *part = getenv("CULM_FAULT_PATH");
    const char *once = getenv("CULM_FAULT_ONCE");
    int made;

    if (!part || !path || !strstr(path, part) || writes != !!getenv("CULM_FAULT_WRITES"))
        return 0;
    if (once) {
        made = open(once, O_CREAT | O_EXCL, 0600);
        if (made < 0)
            return 0;
        close(made);
    }
    errno = atoi(getenv("CULM_FAULT_ERRNO"));
    return 1;
}

static int fails(int fd, int writes)
{
    char name[64], path[4096];
    ssize_t size;

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    size = readlink(name, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return fails_at(path, writes);
}

ssize_t read(int fd, void *to, size_t size)
{
    static ssize_t (*real)(int, void *, size_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "read");
    return fails(fd, 0) ? -1 : real(fd, to, size);
}

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pread");
    return fails(fd, 0) ? -1 : real(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pread64");
    return fails(fd, 0) ? -1 : real(fd, to, size, at);
}

ssize_t write(int fd, const void *from, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "write");
    return fails(fd, 1) ? -1 : real(fd, from, size);
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite");
    return fails(fd, 1) ? -1 : real(fd, from, size, at);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    return fails(fd, 1) ? -1 : real(fd, from, size, at);
}

int rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);

    if (!real)
        real = dlsym(RTLD_NEXT, "rename");
    return fails_at(to, 1) ? -1 : real(from, to);
}
