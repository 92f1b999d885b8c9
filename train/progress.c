// Numbers as people read them, and the lines of a running training.
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

#define NUMBER_BYTES 32
#define LINE_BYTES   512
#define LIVE_SECONDS 0.1 // between two drawings

static struct {
    bool drawn; // a live line stands on the terminal
    bool ever;  // `last` holds a time
    double last;
} live;

const char *fwa_text_count(int64_t count, char text[NUMBER_BYTES]) {
    char digits[NUMBER_BYTES];
    const uint64_t magnitude = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, magnitude);
    char *out = text;
    if (count < 0) *out++ = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

// "%.*f" with as many decimals as leave three digits.
static int decimals(double value) {
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

const char *fwa_text_bytes(int64_t bytes, char text[NUMBER_BYTES]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = fabs((double)bytes);
    int unit = 0;
    for (; value >= 999.5 && unit < 6; unit++) value /= 1000;
    snprintf(text, NUMBER_BYTES, "%s%.*f %s", bytes < 0 ? "-" : "", unit < 3 ? 0 : decimals(value), value, units[unit]);
    return text;
}

const char *fwa_text_seconds(double seconds, char text[NUMBER_BYTES]) {
    if (!(seconds >= 0) || seconds > 1e15) {
        snprintf(text, NUMBER_BYTES, "n/a");
        return text;
    }
    const int64_t s = llround(seconds), minutes = (s + 30) / 60, hours = (s + 1800) / 3600;
    if (s < 60) {
        snprintf(text, NUMBER_BYTES, "%" PRId64 " s", s);
    } else if (s < 3600) {
        snprintf(text, NUMBER_BYTES, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
    } else if (minutes < 24 * 60) {
        snprintf(text, NUMBER_BYTES, "%" PRId64 " h %" PRId64 " min", minutes / 60, minutes % 60);
    } else {
        snprintf(text, NUMBER_BYTES, "%" PRId64 " d %" PRId64 " h", hours / 24, hours % 24);
    }
    return text;
}

static const char *text_rate(double per_s, char text[NUMBER_BYTES]) {
    static const char *const units[] = {"", "k", "M", "G"};
    int unit = 0;
    for (; per_s >= 999.95 && unit < 3; unit++) per_s /= 1000;
    snprintf(text, NUMBER_BYTES, "%.*f%s", unit > 0 ? 1 : 0, per_s, units[unit]);
    return text;
}

// A line in the making: text[0..used), always terminated, cut where it is full.
typedef struct line {
    char *text;
    size_t size, used;
} line;

static void append(line *to, const char *format, ...) FWA_PRINTF(2, 3);
static void append(line *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(to->text + to->used, to->size - to->used, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    to->used += (size_t)length < to->size - to->used ? (size_t)length : to->size - to->used - 1;
}

const char *fwa_progress_text(const fwa_progress *p, char *text, size_t size) {
    char number[NUMBER_BYTES];
    line out = {text, size, 0};
    const int width = snprintf(NULL, 0, "%" PRId64, p->steps);
    text[0] = '\0';
    append(&out, "step  %*" PRId64 "/%" PRId64 "  loss %.4f", width, p->step, p->steps, p->loss);
    if (!isnan(p->val_loss)) append(&out, "  val %.4f", p->val_loss);
    append(&out, "  norm %.2f  lr %.2e  %.1f ms", fabs(p->grad_norm), p->lr, p->ms);
    append(&out, "  %s tok/s", text_rate(p->tokens_per_s, number));
    if (isnan(p->mfu))
        append(&out, "  mfu n/a");
    else
        append(&out, "  mfu %.1f%%", 100 * p->mfu);
    append(&out, "  mem %s", fwa_text_bytes(p->mem_bytes, number));
    if (p->skipped > 0) append(&out, "  skipped %" PRId64, p->skipped);
    append(&out, "  eta %s", fwa_text_seconds(p->eta_s, number));
    return text;
}

void fwa_progress_log(const fwa_progress *progress) {
    char text[LINE_BYTES];
    fwa_progress_clear();
    fwa_log_info("%s", fwa_progress_text(progress, text, sizeof text));
}

// Columns that a line may fill without wrapping.
static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

void fwa_progress_live(const fwa_progress *progress) {
    char text[LINE_BYTES];
    fwa_progress_live_text(fwa_progress_text(progress, text, sizeof text));
}

void fwa_progress_live_text(const char *text) {
    const double time = fwa_clock_seconds();
    if (!isatty(STDERR_FILENO) || (live.ever && time - live.last < LIVE_SECONDS) || !fwa_log_flows()) return;
    fprintf(stderr, "\r%.*s\033[K", terminal_columns(), text);
    fflush(stderr);
    live.drawn = live.ever = true;
    live.last = time;
}

void fwa_progress_clear(void) {
    if (!live.drawn || !fwa_log_flows()) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    live.drawn = false;
}
