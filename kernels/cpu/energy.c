// Energies of the Falcon rules over the B_t pairs of a window I_t (rate.h), and their gradients:
//
//   mean   E_t = (1/B_t) sum_{j in I_t} |x_j|^2                        dx_j += (2 dE_t / B_t) x_j
//   top    E_t = lambda_max((1/B_t) sum_{j in I_t} x_j x_j^T)  (4.14)  dx_j += (2 dE_t / B_t) (z_t . x_j) z_t
//
// with z_t the unit eigenvector of E_t; it is 0 where E_t is 0. The eigenvalue comes from the Gram matrix of the
// window, or from the K x K moment matrix where that is smaller (their nonzero eigenvalues are equal), by Jacobi's
// rotations. Everything is in double in both precisions. Where the largest eigenvalue is not simple it has no
// derivative; z_t is then one of its eigenvectors.
#include "core/shape.h"
#include "kernels/cpu/bump.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/rate.h"

static int64_t window_pairs(const fwa_rate_task *task, int64_t t) {
    return task->n + t + 1 - task->first[t];
}

static double dot_double(const real *a, const real *b, int64_t n) {
    double lane[FWA_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + FWA_LANES <= n; i += FWA_LANES)
        for (int l = 0; l < FWA_LANES; l++) lane[l] += (double)a[i + l] * (double)b[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += (double)a[i + l] * (double)b[i + l];
    for (int l = 0; l < FWA_LANES; l++) sum += lane[l];
    return sum;
}

static size_t mean_work(const fwa_rate_task *task) {
    return (size_t)(task->n + task->T) * sizeof(double);
}

static void mean_energy(const fwa_rate_task *task) {
    double *norms = task->work;
    for (int64_t j = 0; j < task->n + task->T; j++) {
        const real *x = task->x + j * task->K;
        norms[j] = dot_double(x, x, task->K);
    }
    for (int64_t t = 0; t < task->T; t++) {
        task->energy[t] = 0;
        for (int64_t j = task->first[t]; j <= task->n + t; j++) task->energy[t] += norms[j];
        if (window_pairs(task, t) > 0) task->energy[t] /= (double)window_pairs(task, t);
    }
}

static void mean_backward(const fwa_rate_task *task) {
    const int64_t rows = task->n + task->T;
    double *dnorms = task->work;
    memset(dnorms, 0, (size_t)rows * sizeof *dnorms);
    for (int64_t t = 0; t < task->T; t++)
        for (int64_t j = task->first[t]; j <= task->n + t; j++)
            dnorms[j] += task->denergy[t] / (double)window_pairs(task, t);
    for (int64_t j = 0; j < rows; j++)
        fwa_axpy(task->dx + j * task->K, (real)(2 * dnorms[j]), task->x + j * task->K, task->K);
}

const fwa_rate_energy FWA_T(fwa_energy_mean) = {.work = mean_work, .forward = mean_energy, .backward = mean_backward};

typedef struct top_work {
    int64_t s;     // most rows of a matrix to solve
    double *gram;  // [n+T,s]: element d of row j is x_j . x_{j-d}
    double *A, *U; // [s,s]: matrix, eigenvectors as rows
    double *z;     // [T,K], forward alone [K]
    size_t bytes;
} top_work;

static top_work plan_top(const fwa_rate_task *task) {
    const int64_t rows = task->n + task->T;
    fwa_bump bump = {.base = (char *)task->work};
    top_work work = {.s = fwa_min(fwa_min(task->options->window, rows), task->K)};
    work.gram = FWA_TAKE(&bump, double, (rows * work.s));
    work.A = FWA_TAKE(&bump, double, (work.s * work.s));
    work.U = FWA_TAKE(&bump, double, (work.s * work.s));
    work.z = FWA_TAKE(&bump, double, (task->backward ? task->T : 1) * task->K);
    work.bytes = bump.used;
    return work;
}

static size_t top_bytes(const fwa_rate_task *task) {
    return plan_top(task).bytes;
}

static void build_gram(const fwa_rate_task *task, const top_work *work) {
    for (int64_t j = 0; j < task->n + task->T; j++)
        for (int64_t d = 0; d < work->s && d <= j; d++)
            work->gram[j * work->s + d] = dot_double(task->x + j * task->K, task->x + (j - d) * task->K, task->K);
}

// The matrix of step t into A: Gram matrix of its p pairs, or moment matrix where K < p. Returns its rows.
static int64_t window_matrix(const fwa_rate_task *task, const top_work *work, int64_t t) {
    const int64_t first = task->first[t], p = window_pairs(task, t), K = task->K;
    double *A = work->A;
    if (p <= K) {
        for (int64_t i = 0; i < p; i++)
            for (int64_t j = 0; j <= i; j++) A[i * p + j] = A[j * p + i] = work->gram[(first + i) * work->s + i - j];
        return p;
    }
    memset(A, 0, (size_t)(K * K) * sizeof *A);
    for (int64_t j = first; j < first + p; j++) {
        const real *x = task->x + j * K;
        for (int64_t a = 0; a < K; a++)
            for (int64_t b = 0; b < K; b++) A[a * K + b] += (double)x[a] * (double)x[b];
    }
    return K;
}

// Turns rows p and q of M [.,s]: (m_p, m_q) = (c m_p - n m_q, n m_p + c m_q).
static void turn_rows(double *M, int64_t s, int64_t p, int64_t q, double c, double n) {
    for (int64_t k = 0; k < s; k++) {
        const double a = M[p * s + k], b = M[q * s + k];
        M[p * s + k] = c * a - n * b;
        M[q * s + k] = n * a + c * b;
    }
}

// One rotation that makes A_pq = 0.
static void rotate(double *A, double *U, int64_t s, int64_t p, int64_t q) {
    const double off = A[p * s + q];
    if (off == 0) return;
    const double theta = (A[q * s + q] - A[p * s + p]) / (2 * off);
    const double tangent = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(tangent * tangent + 1), n = tangent * c;
    for (int64_t k = 0; k < s; k++) {
        const double a = A[k * s + p], b = A[k * s + q];
        A[k * s + p] = c * a - n * b;
        A[k * s + q] = n * a + c * b;
    }
    turn_rows(A, s, p, q, c, n);
    turn_rows(U, s, p, q, c, n);
    A[p * s + q] = A[q * s + p] = 0;
}

// Squares of all elements of A and of those off the diagonal.
static double off_squares(const double *A, int64_t s, double *all) {
    double off = 0;
    *all = 0;
    for (int64_t i = 0; i < s * s; i++) {
        *all += A[i] * A[i];
        if (i / s != i % s) off += A[i] * A[i];
    }
    return off;
}

// Largest eigenvalue of the symmetric A [s,s], which is destroyed; its eigenvector is row *top of U. Sweeps converge
// quadratically; the bound on their number only ends the loop over NaN.
static double largest_eigenvalue(double *A, double *U, int64_t s, int64_t *top) {
    double all;
    for (int64_t i = 0; i < s * s; i++) U[i] = i / s == i % s;
    for (int sweep = 0; sweep < 60 && !(off_squares(A, s, &all) <= 1e-36 * all); sweep++)
        for (int64_t p = 0; p < s; p++)
            for (int64_t q = p + 1; q < s; q++) rotate(A, U, s, p, q);
    *top = 0;
    for (int64_t i = 1; i < s; i++)
        if (A[i * s + i] > A[*top * s + *top]) *top = i;
    return A[*top * s + *top];
}

// The unit eigenvector z [K] from u: from one of the moment matrix it is u, from one of the Gram matrix X^T u scaled.
static void eigenvector(const fwa_rate_task *task, int64_t t, int64_t s, const double *u, double *z) {
    const int64_t K = task->K;
    double square = 0;
    if (window_pairs(task, t) > K) {
        memcpy(z, u, (size_t)K * sizeof *z);
        return;
    }
    memset(z, 0, (size_t)K * sizeof *z);
    for (int64_t i = 0; i < s; i++)
        for (int64_t k = 0; k < K; k++) z[k] += u[i] * (double)task->x[(task->first[t] + i) * K + k];
    for (int64_t k = 0; k < K; k++) square += z[k] * z[k];
    for (int64_t k = 0; k < K; k++) z[k] /= sqrt(square);
}

static void top_energy(const fwa_rate_task *task) {
    const top_work work = plan_top(task);
    build_gram(task, &work);
    for (int64_t t = 0; t < task->T; t++) {
        double *z = task->backward ? work.z + t * task->K : work.z;
        int64_t top;
        task->energy[t] = 0;
        memset(z, 0, (size_t)task->K * sizeof *z);
        if (window_pairs(task, t) <= 0) continue;
        const int64_t s = window_matrix(task, &work, t);
        const double largest = largest_eigenvalue(work.A, work.U, s, &top);
        if (largest <= 0) continue;
        task->energy[t] = largest / (double)window_pairs(task, t);
        if (task->backward) eigenvector(task, t, s, work.U + top * s, z);
    }
}

static void top_backward(const fwa_rate_task *task) {
    const top_work work = plan_top(task);
    for (int64_t t = 0; t < task->T; t++) {
        const double *z = work.z + t * task->K;
        if (task->denergy[t] == 0) continue;
        for (int64_t j = task->first[t]; j <= task->n + t; j++) {
            const real *x = task->x + j * task->K;
            real *dx = task->dx + j * task->K;
            double along = 0;
            for (int64_t k = 0; k < task->K; k++) along += z[k] * (double)x[k];
            along *= 2 * task->denergy[t] / (double)window_pairs(task, t);
            for (int64_t k = 0; k < task->K; k++) dx[k] += (real)(along * z[k]);
        }
    }
}

const fwa_rate_energy FWA_T(fwa_energy_top) = {.work = top_bytes, .forward = top_energy, .backward = top_backward};
