// delay HOST OTHER MILLISECONDS: a wire between two network namespaces on which every packet takes that long. It makes
// the device `wire` in both, says "ready", and carries packets until it is ended.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { ENDS = 2, SLOTS = 4096, PACKET_MAX = 2048 };

typedef struct packet {
    int64_t due; // ns
    ssize_t bytes;
    char at[PACKET_MAX];
} packet;

// Packets on their way from one end, oldest first.
typedef struct queue {
    packet *slots;
    uint64_t first, next;
} queue;

static void stop(const char *what) {
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// The device belongs to the namespace that the process is in when it is made.
static int open_wire(const char *host) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", host);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) stop(path);
    close(space);
    const int wire = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "wire");
    if (wire < 0 || ioctl(wire, TUNSETIFF, &request) != 0) stop("/dev/net/tun");
    return wire;
}

static void take(queue *q, int wire, int64_t delay) {
    while (q->next - q->first < SLOTS) {
        packet *p = &q->slots[q->next % SLOTS];
        p->bytes = read(wire, p->at, sizeof p->at);
        if (p->bytes < 0 && errno == EBADFD) stop("wire"); // its host is gone
        if (p->bytes <= 0) return;
        p->due = now() + delay;
        q->next++;
    }
}

// What the other end cannot take (it is down, or full) is lost, as on any wire.
static void give(queue *q, int wire) {
    for (; q->first < q->next && q->slots[q->first % SLOTS].due <= now(); q->first++) {
        const packet *p = &q->slots[q->first % SLOTS];
        if (write(wire, p->at, (size_t)p->bytes) < 0 && errno == EBADFD) stop("wire");
    }
}

static struct timespec until_next(const queue q[ENDS]) {
    int64_t wait = INT64_C(1000000000);
    for (int e = 0; e < ENDS; e++) {
        if (q[e].first == q[e].next) continue;
        const int64_t left = q[e].slots[q[e].first % SLOTS].due - now();
        if (left < wait) wait = left > 0 ? left : 0;
    }
    return (struct timespec){.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "delay HOST OTHER MILLISECONDS\n");
        return 2;
    }
    const int64_t delay = atoll(argv[3]) * 1000000;
    struct pollfd wires[ENDS];
    queue queues[ENDS] = {0};
    for (int e = 0; e < ENDS; e++) {
        wires[e] = (struct pollfd){.fd = open_wire(argv[1 + e]), .events = POLLIN};
        queues[e].slots = calloc(SLOTS, sizeof(packet));
        if (!queues[e].slots) stop("memory");
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        const struct timespec wait = until_next(queues);
        if (ppoll(wires, ENDS, &wait, NULL) < 0 && errno != EINTR) stop("poll");
        for (int e = 0; e < ENDS; e++) take(&queues[e], wires[e].fd, delay);
        for (int e = 0; e < ENDS; e++) give(&queues[e], wires[1 - e].fd);
    }
}
