/* Steps the wall clock of the processes that preload this: the file named by LD_LIVERL_FAULT_CLOCK holds two doubles,
   seconds to add to CLOCK_REALTIME, and to CLOCK_BOOTTIME (a suspended machine). Everything else goes on as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double none[2];
static const volatile double *offsets(void) {
    static const volatile double *mapped;
    if (!mapped) {
        const char *path = getenv("LD_LIVERL_FAULT_CLOCK");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
        if (fd >= 0) close(fd);
        mapped = at == MAP_FAILED ? none : at;
    }
    return mapped;
}

static void add(struct timespec *t, double by) {
    long long whole = (long long)by;
    t->tv_sec += whole;
    t->tv_nsec += (long)((by - whole) * 1e9);
    if (t->tv_nsec < 0) t->tv_nsec += 1000000000L, t->tv_sec--;
    if (t->tv_nsec >= 1000000000L) t->tv_nsec -= 1000000000L, t->tv_sec++;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) add(t, offsets()[0]);
    if (rc == 0 && id == CLOCK_BOOTTIME) add(t, offsets()[1]);
    return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec t;
    (void)tz;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    tv->tv_sec = t.tv_sec, tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to) *to = t.tv_sec;
    return t.tv_sec;
}
