/* File calls that fail on order, for one process and its children (LD_PRELOAD). failing_calls.py builds and steers it.

   The environment variable KRAFTLAB_FAILING_CALLS names the control file, which is mapped into every process:

       byte 0              0: no rules; 1 or 2: the table in force, so that new rules are written beside those in force
       bytes 8-15          number of calls that have failed
       from byte 16        table 1, 16 KiB: rules, one in a line: CALL ERRNO PATTERN
       from byte 16 + 16K  table 2

   A call of that kind ("*": of any) fails with that errno if a path of it matches the pattern (fnmatch, "*" matches "/" too). For
   writes, errno 0 means a short write: half of the bytes. Without rules a call costs one look at byte 0. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define TABLES_AT 16
#define TABLE (16 * 1024)
#define PAGE (TABLES_AT + 2 * TABLE)
#define NO_RULE -1

static volatile unsigned char *page;

__attribute__((constructor)) static void map_page(void)
{
    const char *name = getenv("KRAFTLAB_FAILING_CALLS");
    if (name == NULL)
        return;
    int descriptor = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    syscall(SYS_close, descriptor);
    page = mapped == MAP_FAILED ? NULL : mapped;
}

/* Returns the errno of the first rule that matches, NO_RULE if there is none. */
static int find_rule(const char *call, const char *path)
{
    char rules[TABLE + 1];
    unsigned char table = page[0];
    if (table == 0)
        return NO_RULE;
    memccpy(rules, (const void *)(page + TABLES_AT + (table - 1) * TABLE), 0, TABLE);
    rules[TABLE] = 0;
    char *rest = rules;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        char *name = strsep(&line, " "), *number = strsep(&line, " ");
        if (number == NULL || line == NULL || (strcmp(name, "*") != 0 && strcmp(name, call) != 0) || fnmatch(line, path, 0) != 0)
            continue;
        atomic_fetch_add((_Atomic unsigned long *)(page + 8), 1);
        return atoi(number);
    }
    return NO_RULE;
}

static int rule_for_path(const char *call, int directory, const char *path)
{
    if (page == NULL || !page[0] || path == NULL)
        return NO_RULE;
    int saved = errno, found;
    char whole[2 * PATH_MAX] = "";
    if (path[0] != '/' && directory != AT_FDCWD) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, whole, PATH_MAX);
        snprintf(whole + (size > 0 ? size : 0), PATH_MAX, "/%s", path);
    } else {
        snprintf(whole, sizeof whole, "%s", path);
    }
    found = find_rule(call, whole);
    errno = saved;
    return found;
}

static int rule_for(const char *call, int descriptor)
{
    if (page == NULL || !page[0])
        return NO_RULE;
    int saved = errno, found = NO_RULE;
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, PATH_MAX);
    if (size > 0 && path[0] == '/') {
        path[size] = 0;
        found = find_rule(call, path);
    }
    errno = saved;
    return found;
}

static int refuse(int number)
{
    errno = number;
    return -1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define FAIL(rule) \
    do { \
        int number = (rule); \
        if (number > 0) \
            return refuse(number); \
    } while (0)

/* Opening. A file that may be made counts as "create", any other as "open". */

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

#define OPEN_KIND(flags) ((flags) & O_CREAT ? "create" : "open")

int open(const char *path, int flags, ...)
{
    REAL(open);
    MODE_OF(flags)
    FAIL(rule_for_path(OPEN_KIND(flags), AT_FDCWD, path));
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    MODE_OF(flags)
    FAIL(rule_for_path(OPEN_KIND(flags), AT_FDCWD, path));
    return real(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    REAL(openat);
    MODE_OF(flags)
    FAIL(rule_for_path(OPEN_KIND(flags), directory, path));
    return real(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
    REAL(openat64);
    MODE_OF(flags)
    FAIL(rule_for_path(OPEN_KIND(flags), directory, path));
    return real(directory, path, flags, mode);
}

/* Reading and writing. */

#define WRITE(call) \
    do { \
        int number = rule_for("write", descriptor); \
        if (number > 0) \
            return refuse(number); \
        if (number == 0 && size > 1) \
            size /= 2; \
        return call; \
    } while (0)

ssize_t write(int descriptor, const void *data, size_t size)
{
    REAL(write);
    WRITE(real(descriptor, data, size));
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position)
{
    REAL(pwrite);
    WRITE(real(descriptor, data, size, position));
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position)
{
    REAL(pwrite64);
    WRITE(real(descriptor, data, size, position));
}

ssize_t pread(int descriptor, void *data, size_t size, off_t position)
{
    REAL(pread);
    FAIL(rule_for("read", descriptor));
    return real(descriptor, data, size, position);
}

ssize_t pread64(int descriptor, void *data, size_t size, off64_t position)
{
    REAL(pread64);
    FAIL(rule_for("read", descriptor));
    return real(descriptor, data, size, position);
}

ssize_t copy_file_range(int source, off64_t *from, int descriptor, off64_t *to, size_t size, unsigned flags)
{
    REAL(copy_file_range);
    FAIL(rule_for("read", source));
    WRITE(real(source, from, descriptor, to, size, flags));
}

ssize_t sendfile(int socket, int source, off_t *from, size_t size)
{
    REAL(sendfile);
    FAIL(rule_for("read", source));
    return real(socket, source, from, size);
}

ssize_t sendfile64(int socket, int source, off64_t *from, size_t size)
{
    REAL(sendfile64);
    FAIL(rule_for("read", source));
    return real(socket, source, from, size);
}

/* Space for later writes. posix_fallocate returns its error. */

int posix_fallocate(int descriptor, off_t offset, off_t size)
{
    REAL(posix_fallocate);
    int number = rule_for("write", descriptor);
    return number > 0 ? number : real(descriptor, offset, size);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t size)
{
    REAL(posix_fallocate64);
    int number = rule_for("write", descriptor);
    return number > 0 ? number : real(descriptor, offset, size);
}

int ftruncate(int descriptor, off_t size)
{
    REAL(ftruncate);
    FAIL(rule_for("truncate", descriptor));
    return real(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size)
{
    REAL(ftruncate64);
    FAIL(rule_for("truncate", descriptor));
    return real(descriptor, size);
}

/* Making durable. */

int fsync(int descriptor)
{
    REAL(fsync);
    FAIL(rule_for("sync", descriptor));
    return real(descriptor);
}

int fdatasync(int descriptor)
{
    REAL(fdatasync);
    FAIL(rule_for("sync", descriptor));
    return real(descriptor);
}

int syncfs(int descriptor)
{
    REAL(syncfs);
    FAIL(rule_for("sync", descriptor));
    return real(descriptor);
}

/* Names. */

int rename(const char *source, const char *target)
{
    REAL(rename);
    FAIL(rule_for_path("rename", AT_FDCWD, source));
    FAIL(rule_for_path("rename", AT_FDCWD, target));
    return real(source, target);
}

int renameat(int from, const char *source, int to, const char *target)
{
    REAL(renameat);
    FAIL(rule_for_path("rename", from, source));
    FAIL(rule_for_path("rename", to, target));
    return real(from, source, to, target);
}

int unlink(const char *path)
{
    REAL(unlink);
    FAIL(rule_for_path("remove", AT_FDCWD, path));
    return real(path);
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(unlinkat);
    FAIL(rule_for_path("remove", directory, path));
    return real(directory, path, flags);
}

int rmdir(const char *path)
{
    REAL(rmdir);
    FAIL(rule_for_path("remove", AT_FDCWD, path));
    return real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    FAIL(rule_for_path("mkdir", AT_FDCWD, path));
    return real(path, mode);
}
