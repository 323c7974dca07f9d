/* Preloaded: reads of files whose path holds CULM_FAULT_PATH fail with CULM_FAULT_ERRNO: all of
   them, or one, if CULM_FAULT_ONCE names a file, which is made then. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd)
{
    const char *part = getenv("CULM_FAULT_PATH");
    const char *once = getenv("CULM_FAULT_ONCE");
    char name[64], path[4096];
    ssize_t size;
    int made;

    if (!part)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    size = readlink(name, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    if (!strstr(path, part))
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

ssize_t read(int fd, void *to, size_t size)
{
    static ssize_t (*real)(int, void *, size_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "read");
    return fails(fd) ? -1 : real(fd, to, size);
}

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pread");
    return fails(fd) ? -1 : real(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    static ssize_t (*real)(int, void *, size_t, off64_t);

    if (!real)
        real = dlsym(RTLD_NEXT, "pread64");
    return fails(fd) ? -1 : real(fd, to, size, at);
}
