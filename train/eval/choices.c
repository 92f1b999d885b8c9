// fwa eval --task mc: accuracy on questions with choices, and on the last words of contexts.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/shape.h"
#include "io/files.h"
#include "io/jsonl.h"
#include "train/eval/eval.h"
#include "train/eval/questions.h"
#include "train/eval/score.h"

// How choices are compared: by log-probability, and by that over characters or tokens of the choice.
enum { SUM, CHARACTERS, TOKENS, WAYS };
static const char *const way_name[WAYS] = {"accuracy", "by characters", "by tokens"};

// Tasks that the published mean is over, and the way it takes for each.
static const struct {
    const char *name, *other;
    int way;
} published[] = {
    {"piqa", "piqa", SUM},
    {"hellaswag", "hellaswag", CHARACTERS},
    {"winogrande", "winogrande", SUM},
    {"arc_easy", "arc-easy", SUM},
    {"arc_challenge", "arc-challenge", CHARACTERS},
    {"openbookqa", "openbookqa", CHARACTERS},
    {"siqa", "social_iqa", SUM},
    {"sciq", "sciq", SUM},
};
#define PUBLISHED (sizeof published / sizeof *published)

// What the scores of a set say.
typedef struct result {
    char name[64];
    bool word, by_characters;
    int64_t count, cut;
    double accuracy[WAYS];
    double perplexity, perplexity_error; // of words
} result;

// A set, and for each of its choices a request.
typedef struct work {
    const fwa_loaded *loaded;
    const fwa_eval_request *request;
    const fwa_tokenizer *tokenizer;
    fwa_questions set;
    int64_t count, choices, cut; // questions asked, and their choices together; contexts cut
    fwa_tokens tokens;
    int64_t *start; // of each choice in tokens
    fwa_score_request *requests;
    fwa_score *scores;
} work;

static void free_work(work *w) {
    fwa_questions_free(&w->set);
    free(w->tokens.at);
    free(w->start);
    free(w->requests);
    free(w->scores);
}

// Attention knows no positions behind those it was trained on.
static fwa_status limit_length(work *w, int64_t place, fwa_score_request *r) {
    const int64_t most = w->loaded->seq_len + 1, over = r->count - most; // the last token is not read
    if (!w->loaded->attention || over <= 0) return FWA_OK;
    FWA_CHECK(w->request->cut && over < r->first, FWA_FORMAT,
              "%s: %s %lld has %lld tokens, and the model's attention was trained on sequences of %lld; %s",
              w->set.path, w->set.ids ? "example" : "line", (long long)place, (long long)r->count,
              (long long)w->loaded->seq_len,
              w->request->cut ? "its choice alone is too long" : "--cut leaves out the beginning of such contexts");
    r->tokens += over;
    r->count -= over;
    r->first -= over;
    w->cut++;
    return FWA_OK;
}

static fwa_status encode(work *w) {
    const fwa_shots shots = {w->request->shots, w->request->seed};
    const int64_t vocab = w->loaded->model->spec.vocab;
    int64_t n = 0;
    for (int64_t i = 0; i < w->count; i++)
        for (int c = 0; c < w->set.at[i].count; c++, n++) {
            w->start[n] = (int64_t)w->tokens.count;
            FWA_TRY(
                fwa_questions_encode(&w->set, w->tokenizer, &shots, vocab, i, c, &w->tokens, &w->requests[n].first));
            w->requests[n].count = (int64_t)w->tokens.count - w->start[n];
        }
    n = 0;
    for (int64_t i = 0; i < w->count; i++) // now that the tokens stay where they are
        for (int c = 0; c < w->set.at[i].count; c++, n++) {
            w->requests[n].tokens = w->tokens.at + w->start[n];
            FWA_TRY(limit_length(w, w->set.at[i].place, &w->requests[n]));
        }
    return FWA_OK;
}

static fwa_status prepare(work *w, const char *path) {
    const fwa_eval_request *r = w->request;
    FWA_TRY(fwa_questions_read(&w->set, path));
    FWA_CHECK(w->set.ids || w->tokenizer, FWA_ERROR, "%s: text without a tokenizer", path);
    FWA_CHECK(r->shots < w->set.count, FWA_USAGE, "--shots %lld: %s has %lld question%s, one of which is asked",
              (long long)r->shots, path, (long long)w->set.count, fwa_plural(w->set.count));
    w->count = r->examples > 0 ? fwa_min(r->examples, w->set.count) : w->set.count;
    for (int64_t i = 0; i < w->count; i++) w->choices += w->set.at[i].count;
    w->start = calloc((size_t)w->choices, sizeof *w->start);
    w->requests = calloc((size_t)w->choices, sizeof *w->requests);
    w->scores = calloc((size_t)w->choices, sizeof *w->scores);
    FWA_CHECK(w->start && w->requests && w->scores, FWA_MEMORY, "%s: no memory for %lld choices", path,
              (long long)w->choices);
    return encode(w);
}

// The best of the question's choices, from number n on, one way; the first of equals. -1: there is no such number.
static fwa_status best_choice(const work *w, int64_t i, int64_t n, int way, int *best) {
    double top = -INFINITY;
    *best = -1;
    for (int c = 0; c < w->set.at[i].count; c++) {
        int64_t size = 1;
        if (way == CHARACTERS) FWA_TRY(fwa_questions_characters(&w->set, w->tokenizer, i, c, &size));
        if (way == TOKENS) size = w->requests[n + c].count - w->requests[n + c].first;
        const double value = size > 0 ? w->scores[n + c].logprob / (double)size : -INFINITY;
        if (value <= top) continue;
        top = value;
        *best = c;
    }
    return FWA_OK;
}

static void put_word(FILE *out, const work *w, int64_t i) {
    if (!out) return;
    fprintf(out, "{\"task\": \"%s\", \"place\": %lld, \"logprob\": ", w->set.name, (long long)w->set.at[i].place);
    fwa_json_real(w->scores[i].logprob, out);
    fprintf(out, ", \"greedy\": %s}\n", w->scores[i].greedy > 0 ? "true" : "false");
}

static void put_question(FILE *out, const work *w, int64_t i, int64_t n, const int best[WAYS]) {
    if (!out) return;
    fprintf(out, "{\"task\": \"%s\", \"place\": %lld, \"gold\": %d, \"logprobs\": [", w->set.name,
            (long long)w->set.at[i].place, w->set.at[i].gold);
    for (int c = 0; c < w->set.at[i].count; c++) {
        if (c) fputs(", ", out);
        fwa_json_real(w->scores[n + c].logprob, out);
    }
    fprintf(out, "], \"choice\": %d, \"choice_by_characters\": %d, \"choice_by_tokens\": %d}\n", best[SUM],
            best[CHARACTERS], best[TOKENS]);
}

static fwa_status judge_choices(const work *w, result *r, FILE *scores) {
    int64_t n = 0, right[WAYS] = {0};
    r->by_characters = true;
    for (int64_t i = 0; i < w->count; n += w->set.at[i++].count) {
        int best[WAYS];
        for (int way = 0; way < WAYS; way++) {
            FWA_TRY(best_choice(w, i, n, way, &best[way]));
            right[way] += best[way] == w->set.at[i].gold;
        }
        r->by_characters = r->by_characters && best[CHARACTERS] >= 0;
        put_question(scores, w, i, n, best);
    }
    for (int way = 0; way < WAYS; way++) r->accuracy[way] = (double)right[way] / (double)w->count;
    return FWA_OK;
}

static void judge_words(const work *w, result *r, FILE *scores) {
    double right = 0.0, sum = 0.0, square = 0.0;
    const double n = (double)w->count;
    for (int64_t i = 0; i < w->count; i++) {
        right += w->scores[i].greedy;
        sum += w->scores[i].logprob;
        put_word(scores, w, i);
    }
    for (int64_t i = 0; i < w->count; i++) square += pow(w->scores[i].logprob - sum / n, 2.0);
    r->accuracy[SUM] = right / n;
    r->perplexity = exp(-sum / n);
    r->perplexity_error = n > 1 ? r->perplexity * sqrt(square / (n - 1.0) / n) : 0.0;
}

// Collective, with one verdict for all: the next set is scored together.
static fwa_status measure(fwa_world *world, work *w, result *r, FILE *scores) {
    FWA_TRY(fwa_score_all(world, w->loaded, w->requests, w->choices, w->request->batch, w->scores));
    snprintf(r->name, sizeof r->name, "%s", w->set.name);
    r->word = w->set.word;
    r->count = w->count;
    r->cut = w->cut;
    if (!w->set.word) return fwa_world_agree(world, judge_choices(w, r, scores));
    judge_words(w, r, scores);
    return FWA_OK;
}

// Standard error of a share p of n.
static double share_error(double p, int64_t n) {
    return n > 1 ? sqrt(p * (1.0 - p) / (double)(n - 1)) : 0.0;
}

// Mean of the published tasks that are there; returns their number, and names those that are not.
static int published_mean(const result *results, int count, double *mean, double *error, char *missing, size_t size) {
    int found = 0;
    double sum = 0.0, square = 0.0;
    missing[0] = '\0';
    for (size_t p = 0; p < PUBLISHED; p++) {
        const result *r = NULL;
        for (int i = 0; i < count; i++)
            if (!results[i].word &&
                (!strcmp(results[i].name, published[p].name) || !strcmp(results[i].name, published[p].other)))
                r = &results[i];
        if (!r || (published[p].way == CHARACTERS && !r->by_characters)) {
            const size_t used = strlen(missing);
            snprintf(missing + used, size - used, "%s%s", used ? ", " : "", published[p].name);
            continue;
        }
        const double p_error = share_error(r->accuracy[published[p].way], r->count);
        found++;
        sum += r->accuracy[published[p].way];
        square += p_error * p_error;
    }
    *mean = found ? sum / found : 0.0;
    *error = found ? sqrt(square) / found : 0.0;
    return found;
}

static void print_row(const result *r) {
    printf("  %-16s %8lld ", r->name, (long long)r->count);
    for (int way = 0; way < WAYS; way++) {
        const bool there = way == SUM || (!r->word && (way != CHARACTERS || r->by_characters));
        if (there)
            printf("  %6.2f +- %-5.2f", 100.0 * r->accuracy[way], 100.0 * share_error(r->accuracy[way], r->count));
        else
            printf("  %15s", r->word && way == CHARACTERS ? "" : r->word ? "" : "n/a");
    }
    if (r->word) printf("  perplexity %.3f +- %.3f", r->perplexity, r->perplexity_error);
    if (r->cut) printf("  (%lld context%s cut)", (long long)r->cut, fwa_plural(r->cut));
    printf("\n");
}

static void print_table(const fwa_loaded *l, const fwa_eval_request *q, const result *results, int count) {
    char missing[256];
    double mean, error;
    printf("\n%s, step %lld; %lld solved question%s in front of each; per cent +- standard error\n", l->path,
           (long long)l->step, (long long)q->shots, fwa_plural(q->shots));
    printf("  %-16s %8s ", "task", "examples");
    for (int way = 0; way < WAYS; way++) printf("  %15s", way_name[way]);
    printf("\n");
    for (int i = 0; i < count; i++) print_row(&results[i]);
    const int found = published_mean(results, count, &mean, &error, missing, sizeof missing);
    if (found == 0) return;
    printf("mean of %d of the paper's %zu tasks: %.2f +- %.2f (by characters for hellaswag, arc_challenge, "
           "openbookqa)\n",
           found, PUBLISHED, 100.0 * mean, 100.0 * error);
    if (missing[0]) printf("  without %s\n", missing);
}

// A number and its standard error, behind other members.
static void put_pair(FILE *out, const char *key, double value, double error) {
    fprintf(out, ", \"%s\": ", key);
    fwa_json_real(value, out);
    fprintf(out, ", \"%s_error\": ", key);
    fwa_json_real(error, out);
}

static void put_result(FILE *out, const result *r) {
    static const char *const key[WAYS] = {"accuracy", "accuracy_by_characters", "accuracy_by_tokens"};
    fprintf(out, "{\"task\": \"%s\", \"examples\": %lld, \"contexts_cut\": %lld", r->name, (long long)r->count,
            (long long)r->cut);
    for (int way = 0; way < WAYS; way++)
        if (way == SUM || (!r->word && (way != CHARACTERS || r->by_characters)))
            put_pair(out, key[way], r->accuracy[way], share_error(r->accuracy[way], r->count));
    if (r->word) put_pair(out, "perplexity", r->perplexity, r->perplexity_error);
    fprintf(out, "}");
}

static void put_results(FILE *out, const fwa_loaded *l, const fwa_eval_request *q, const result *results, int count) {
    char missing[256];
    double mean, error;
    fprintf(out, "{\"task\": \"mc\", \"step\": %lld, \"shots\": %lld, \"seed\": %lld, \"results\": [",
            (long long)l->step, (long long)q->shots, (long long)q->seed);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s\n  ", i ? "," : "");
        put_result(out, &results[i]);
    }
    const int found = published_mean(results, count, &mean, &error, missing, sizeof missing);
    fprintf(out, "\n], \"published_tasks\": %d, \"published_tasks_of\": %zu", found, PUBLISHED);
    if (found) put_pair(out, "published_mean", mean, error);
    fprintf(out, "}\n");
}

static fwa_status write_results(const char *path, const fwa_loaded *l, const fwa_eval_request *q, const result *results,
                                int count) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FWA_CHECK(out, FWA_MEMORY, "%s: out of memory", path);
    put_results(out, l, q, results, count);
    return fwa_write_stream(path, out, &text);
}

static fwa_status report(const fwa_loaded *l, const fwa_eval_request *q, const result *results, int count) {
    print_table(l, q, results, count);
    return q->json ? write_results(q->json, l, q, results, count) : FWA_OK;
}

// With what is written to --scores: rank 0 has `scores`, others NULL.
static fwa_status measure_sets(fwa_world *world, work *works, result *results, int count, FILE *scores) {
    for (int i = 0; i < count; i++) FWA_TRY(measure(world, &works[i], &results[i], scores));
    return world->rank == 0 ? report(works->loaded, works->request, results, count) : FWA_OK;
}

static fwa_status measure_all(fwa_world *world, work *works, result *results, int count) {
    const char *path = world->rank == 0 ? works->request->scores : NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *scores = path ? open_memstream(&text, &size) : NULL;
    fwa_status status = FWA_OK;
    if (path && !scores) status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "%s: out of memory", path);
    FWA_TRY(fwa_world_agree(world, status));
    status = measure_sets(world, works, results, count, scores);
    if (scores && status == FWA_OK)
        status = fwa_write_stream(path, scores, &text);
    else if (scores)
        fclose(scores);
    free(text);
    return fwa_world_agree(world, status);
}

// Every file is read before the first is scored.
static fwa_status prepare_all(const fwa_loaded *l, const fwa_eval_request *q, const fwa_tokenizer *tokenizer,
                              const fwa_paths *files, work *works) {
    for (int i = 0; i < files->count; i++) {
        works[i] = (work){.loaded = l, .request = q, .tokenizer = tokenizer};
        FWA_TRY(prepare(&works[i], files->at[i]));
    }
    return FWA_OK;
}

static fwa_status open_all(const fwa_loaded *l, const fwa_eval_request *q, fwa_paths *files, fwa_tokenizer **tokenizer,
                           work **works, result **results) {
    FWA_TRY(fwa_eval_files_find(files, q, l->config));
    FWA_TRY(fwa_eval_tokenizer(tokenizer, l->config, l->path, q, files));
    *works = calloc((size_t)files->count, sizeof **works);
    *results = calloc((size_t)files->count, sizeof **results);
    FWA_CHECK(*works && *results, FWA_MEMORY, "no memory for the results of %d files", files->count);
    return prepare_all(l, q, *tokenizer, files, *works);
}

fwa_status fwa_eval_choices(fwa_world *world, const fwa_loaded *l, const fwa_eval_request *q) {
    fwa_paths files = {0};
    fwa_tokenizer *tokenizer = NULL;
    work *works = NULL;
    result *results = NULL;
    fwa_status status = fwa_world_agree_late(world, open_all(l, q, &files, &tokenizer, &works, &results));
    if (status == FWA_OK) status = measure_all(world, works, results, files.count);
    for (int i = 0; works && i < files.count; i++) free_work(&works[i]);
    free(works);
    free(results);
    fwa_tokenizer_close(tokenizer);
    fwa_paths_free(&files);
    return status;
}
