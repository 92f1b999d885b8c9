// A ring of batches: one thread reads and takes, the others encode.
#include "train/data/encode.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "core/shape.h"
#include "io/jsonl.h"

#define SPLIT_BYTES ((size_t)65536)    // of a document's text that decide its split
#define KEPT_BYTES  ((size_t)16 << 20) // larger buffers are freed after use

typedef struct slot {
    fwa_batch batch;
    fwa_encoded encoded;
    bool done;
    fwa_status status;
    char *message; // of a failure
} slot;

typedef struct ring {
    const fwa_tokenizer *tokenizer;
    const fwa_tokenize_request *request;
    slot *slots;
    int64_t size;
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    int64_t given, begun, taken; // batches: read, being encoded or more, taken
    bool stop;
    pthread_t *threads;
    int64_t thread_count;
} ring;

static int split_of(const fwa_tokenize_request *r, const char *text, size_t bytes) {
    const uint64_t hash = XXH3_64bits_withSeed(text, bytes < SPLIT_BYTES ? bytes : SPLIT_BYTES, (uint64_t)r->seed);
    return (double)(hash >> 11) * 0x1p-53 < r->val;
}

static fwa_status add_stretch(fwa_encoded *e, int split) {
    if (e->count == e->capacity) {
        const size_t capacity = 2 * e->capacity + 64;
        fwa_stretch *stretches = realloc(e->stretches, capacity * sizeof *stretches);
        FWA_CHECK(stretches, FWA_MEMORY, "no memory for %zu documents", capacity);
        e->stretches = stretches;
        e->capacity = capacity;
    }
    e->stretches[e->count++] = (fwa_stretch){e->tokens.count, split};
    return FWA_OK;
}

static fwa_status encode_text(const ring *p, fwa_encoded *e, const char *text, size_t bytes, bool document) {
    if (bytes == 0) {
        e->empty++;
        return FWA_OK;
    }
    FWA_TRY(add_stretch(e, document ? split_of(p->request, text, bytes) : -1));
    FWA_TRY(fwa_tokens_reserve(&e->tokens, 1));
    if (document) e->tokens.at[e->tokens.count++] = fwa_tokenizer_document(p->tokenizer);
    e->bytes += (int64_t)bytes;
    return fwa_tokenizer_encode(p->tokenizer, text, bytes, &e->tokens);
}

static fwa_status encode_json(const ring *p, fwa_encoded *e, const fwa_part *part, const char *line) {
    json_t *object;
    const json_t *text;
    fwa_status status = fwa_jsonl_text(part->path, part->line, line, part->bytes, p->request->field, &object, &text);
    if (status == FWA_OK && object) status = encode_text(p, e, json_string_value(text), json_string_length(text), true);
    json_decref(object);
    return status;
}

static fwa_status encode_batch(const ring *p, const fwa_batch *batch, fwa_encoded *e) {
    e->tokens.count = e->count = 0;
    e->bytes = e->empty = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const fwa_part *part = &batch->parts[i];
        const char *text = batch->text.at + part->start;
        if (p->request->jsonl) {
            FWA_TRY(encode_json(p, e, part, text));
        } else {
            FWA_TRY(encode_text(p, e, text, part->bytes, part->document));
        }
    }
    return FWA_OK;
}

static void encode_slot(const ring *p, slot *s) {
    s->status = encode_batch(p, &s->batch, &s->encoded);
    if (s->status != FWA_OK) s->message = strdup(fwa_error_message());
}

static void *work(void *argument) {
    ring *p = argument;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->begun == p->given && !p->stop) pthread_cond_wait(&p->work, &p->mutex);
        if (p->stop) break;
        slot *s = &p->slots[p->begun++ % p->size];
        pthread_mutex_unlock(&p->mutex);
        encode_slot(p, s);
        pthread_mutex_lock(&p->mutex);
        s->done = true;
        pthread_cond_signal(&p->finished);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void trim(slot *s) {
    if (s->batch.text.capacity > KEPT_BYTES) {
        free(s->batch.text.at);
        s->batch.text = (fwa_text){0};
    }
    if (s->encoded.tokens.capacity > KEPT_BYTES / sizeof(int32_t)) {
        free(s->encoded.tokens.at);
        s->encoded.tokens = (fwa_tokens){0};
    }
}

static fwa_status take_slot(slot *s, fwa_encoded_taker take, void *context) {
    FWA_CHECK(s->status == FWA_OK, s->status, "%s", s->message ? s->message : "out of memory");
    FWA_TRY(take(context, &s->encoded));
    trim(s);
    return FWA_OK;
}

// Takes what is finished, else reads, else waits, until nothing is left.
static fwa_status run(ring *p, fwa_data_input *input, fwa_encoded_taker take, void *context) {
    bool ended = false;
    while (!ended || p->taken < p->given) {
        slot *first = &p->slots[p->taken % p->size];
        pthread_mutex_lock(&p->mutex);
        const bool full = ended || p->given - p->taken == p->size;
        while (full && !first->done) pthread_cond_wait(&p->finished, &p->mutex);
        const bool done = p->taken < p->given && first->done;
        pthread_mutex_unlock(&p->mutex);
        if (done) {
            FWA_TRY(take_slot(first, take, context));
            first->done = false;
            p->taken++;
            continue;
        }
        slot *free_slot = &p->slots[p->given % p->size];
        FWA_TRY(fwa_data_input_read(input, &free_slot->batch));
        ended = free_slot->batch.count == 0;
        if (ended) continue;
        pthread_mutex_lock(&p->mutex);
        p->given++;
        pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->mutex);
    }
    return FWA_OK;
}

// Signals stay with the thread that runs the program.
static fwa_status start_threads(ring *p) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    for (int64_t wanted = p->request->threads; p->thread_count < wanted && code == 0;) {
        code = pthread_create(&p->threads[p->thread_count], NULL, work, p);
        if (code == 0) p->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    FWA_CHECK(code == 0, FWA_IO, "cannot start thread %lld: %s", (long long)p->thread_count + 1, strerror(code));
    return FWA_OK;
}

static void stop_threads(ring *p) {
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
    for (int64_t i = 0; i < p->thread_count; i++) pthread_join(p->threads[i], NULL);
}

static void free_slots(ring *p) {
    for (int64_t i = 0; p->slots && i < p->size; i++) {
        slot *s = &p->slots[i];
        fwa_batch_free(&s->batch);
        free(s->encoded.tokens.at);
        free(s->encoded.stretches);
        free(s->message);
    }
    free(p->slots);
    free(p->threads);
}

fwa_status fwa_data_encode(const fwa_tokenizer *tokenizer, const fwa_tokenize_request *request, fwa_data_input *input,
                           fwa_encoded_taker take, void *context) {
    ring p = {.tokenizer = tokenizer, .request = request, .size = 2 * request->threads + 2};
    fwa_status status;
    json_object_seed(0); // once, before threads parse
    pthread_mutex_init(&p.mutex, NULL);
    pthread_cond_init(&p.work, NULL);
    pthread_cond_init(&p.finished, NULL);
    p.slots = calloc((size_t)p.size, sizeof *p.slots);
    p.threads = calloc((size_t)request->threads, sizeof *p.threads);
    FWA_CHECK_GOTO(p.slots && p.threads, FWA_MEMORY, done, "no memory for %lld threads", (long long)request->threads);
    status = start_threads(&p);
    if (status == FWA_OK) status = run(&p, input, take, context);
    stop_threads(&p);
done:
    free_slots(&p);
    pthread_cond_destroy(&p.work);
    pthread_cond_destroy(&p.finished);
    pthread_mutex_destroy(&p.mutex);
    return status;
}
