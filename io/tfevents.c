// Event files of TensorBoard.
#include "io/tfevents.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"

#define CRC_POLYNOMIAL 0x82F63B78u // of CRC-32C, bits reversed

uint32_t fwa_crc32c(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
    }
    return ~crc;
}

// What records store: the sum rotated right by 15 bits, plus a constant.
static uint32_t masked(const void *bytes, size_t size) {
    const uint32_t crc = fwa_crc32c(bytes, size);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static void put_little_endian(FILE *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) fputc((int)(value >> (8 * i) & 0xFF), out);
}

static void put_record(FILE *out, const void *data, size_t size) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(((uint64_t)size >> (8 * i)) & 0xFF);
    fwrite(length, 1, sizeof length, out);
    put_little_endian(out, masked(length, sizeof length), 4);
    fwrite(data, 1, size, out);
    put_little_endian(out, masked(data, size), 4);
}

// A protocol-buffer message in the making: an event has 12 scalars with short tags.
typedef struct message {
    unsigned char byte[1024];
    size_t size;
} message;

static void add_byte(message *m, unsigned value) {
    if (m->size < sizeof m->byte) m->byte[m->size++] = (unsigned char)value;
}

static void add_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) add_byte(m, (unsigned)(value & 0x7F) | 0x80);
    add_byte(m, (unsigned)value);
}

static void add_fixed(message *m, const void *value, size_t size) { // numbers are stored as x86 and ARM hold them
    for (size_t i = 0; i < size; i++) add_byte(m, ((const unsigned char *)value)[i]);
}

// Field numbers and wire types in one byte: number << 3 | (0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes).
static void add_text(message *m, unsigned field, const void *text, size_t size) {
    add_byte(m, field << 3 | 2);
    add_varint(m, size);
    add_fixed(m, text, size);
}

static message event_at(double time) {
    message event = {.size = 0};
    add_byte(&event, 1 << 3 | 1);
    add_fixed(&event, &time, sizeof time);
    return event;
}

static void add_scalar(message *summary, const char *tag, double value) {
    const float number = (float)value;
    message scalar = {.size = 0};
    if (!isfinite(value)) return;
    add_text(&scalar, 1, tag, strlen(tag));
    add_byte(&scalar, 2 << 3 | 5);
    add_fixed(&scalar, &number, sizeof number);
    add_text(summary, 1, scalar.byte, scalar.size);
}

static void put_row(FILE *out, const fwa_metrics_row *row) {
    message event = event_at(isfinite(row->time) ? row->time : 0.0), summary = {.size = 0};
    add_byte(&event, 2 << 3 | 0);
    add_varint(&event, (uint64_t)row->step);
    add_scalar(&summary, "train/loss", row->loss);
    add_scalar(&summary, "train/grad_norm", row->grad_norm);
    add_scalar(&summary, "train/lr", row->lr);
    add_scalar(&summary, "train/skipped", (double)row->skipped);
    add_scalar(&summary, "val/loss", row->val_loss);
    add_scalar(&summary, "speed/tokens_per_s", row->tokens_per_s);
    add_scalar(&summary, "speed/ms", row->ms);
    add_scalar(&summary, "speed/mfu", row->mfu);
    add_scalar(&summary, "gates/gamma_mean", row->gamma_mean);
    add_scalar(&summary, "gates/eta_mean", row->eta_mean);
    add_scalar(&summary, "gates/ridge_mean", row->ridge_mean);
    add_scalar(&summary, "gates/clamp_share", row->clamp_share);
    add_text(&event, 5, summary.byte, summary.size);
    put_record(out, event.byte, event.size);
}

fwa_status fwa_tfevents_write(const char *path, const fwa_metrics_row *rows, int64_t count) {
    static const char version[] = "brain.Event:2"; // what readers expect of the first record
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    FWA_CHECK(out, FWA_MEMORY, "no memory for %s", path);
    message first = event_at(count && isfinite(rows[0].time) ? rows[0].time : 0.0);
    add_text(&first, 3, version, sizeof version - 1);
    put_record(out, first.byte, first.size);
    for (int64_t i = 0; i < count; i++) put_row(out, &rows[i]);
    FWA_CHECK(fwa_stream_end(out, &bytes), FWA_MEMORY, "no memory for %s", path);
    const fwa_status status = fwa_write_bytes(path, bytes, size);
    free(bytes);
    return status;
}
