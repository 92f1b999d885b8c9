// Energies of the Falcon rules over the B_t pairs of a window I_t (rate.cuh):
//
//   mean   E_t = (1/B_t) sum_{j in I_t} |x_j|^2
//   top    E_t = lambda_max((1/B_t) sum_{j in I_t} x_j x_j^T)  (4.14), with its unit eigenvector z_t
//
// Their gradients are taken where dx is put together (moves.cu). Shapes: E [B,Hq,T] double, z [B,Hq,T,Kp] fp32,
// 0 where E_t is 0. Everything between is double. The eigenvalue comes from the Gram matrix of the window, or from the
// K x K moment matrix where that is smaller, by Jacobi's rotations. Mapping: norms a warp a row, mean a thread a step;
// top a warp a step, lanes along the rows of its s x s matrices, which lie in shared memory, or in task.jacobi where
// they are too large for it. Cost of top: s rotations of 6 s each in s/2 pairs, a few sweeps.
#include "kernels/cuda/rate.cuh"

namespace {

using namespace fwa;

constexpr int64_t shared_rows = 54;   // 2 s^2 doubles in 48 KB
constexpr int64_t large_blocks = 512; // warps that share task.jacobi

__global__ void __launch_bounds__(map_threads) energy_norms_kernel(const __grid_constant__ mixer_task a) {
    each_row(a.B * a.Hq * a.rows, [&](int64_t row) {
        const float *x = a.xs + row * a.Kp;
        double sum = 0;
        for (int64_t k = threadIdx.x % 32; k < a.Kp; k += 32) sum += static_cast<double>(x[k]) * x[k];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) a.norms[row] = sum;
    });
}

__global__ void __launch_bounds__(map_threads) energy_mean_kernel(const __grid_constant__ mixer_task a) {
    each_element(a.B * a.Hq * a.T, [&](int64_t i) {
        const int64_t t = i % a.T, head = i / a.T, b = head / a.Hq, pairs = a.pairs(b, t);
        double sum = 0;
        for (int64_t j = a.first_of(b, t); j <= a.n + t; j++) sum += a.norms[head * a.rows + j];
        a.energy[i] = pairs > 0 ? sum / static_cast<double>(pairs) : 0;
    });
}

// A symmetric matrix and the rotations so far, for one warp.
struct jacobi {
    double *A, *U;
    int64_t s;
    int lane;

    // Rows p and q of M: (m_p, m_q) = (c m_p - n m_q, n m_p + c m_q); `along`, `across`: strides in a row and between.
    __device__ void turn(double *M, int64_t along, int64_t across, int64_t p, int64_t q, double c, double n) const {
        for (int64_t k = lane; k < s; k += 32) {
            const double x = M[k * along + p * across], y = M[k * along + q * across];
            M[k * along + p * across] = c * x - n * y;
            M[k * along + q * across] = n * x + c * y;
        }
        __syncwarp();
    }

    // One rotation that makes A_pq = 0.
    __device__ void rotate(int64_t p, int64_t q) const {
        const double off = A[p * s + q], difference = A[q * s + q] - A[p * s + p];
        __syncwarp();
        if (off == 0) return;
        const double theta = difference / (2 * off);
        const double tangent = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
        const double c = 1 / sqrt(tangent * tangent + 1), n = tangent * c;
        turn(A, s, 1, p, q, c, n);
        turn(A, 1, s, p, q, c, n);
        turn(U, 1, s, p, q, c, n);
        if (lane == 0) A[p * s + q] = A[q * s + p] = 0;
        __syncwarp();
    }

    __device__ bool diagonal() const {
        double all = 0, off = 0;
        for (int64_t i = lane; i < s * s; i += 32) {
            all += A[i] * A[i];
            if (i / s != i % s) off += A[i] * A[i];
        }
        return warp_sum(off) <= 1e-36 * warp_sum(all);
    }

    // Row of U that is the eigenvector of the largest eigenvalue. The bound on the sweeps only ends the loop over NaN.
    __device__ int64_t solve() const {
        for (int64_t i = lane; i < s * s; i += 32) U[i] = i / s == i % s;
        __syncwarp();
        for (int sweep = 0; sweep < 60 && !diagonal(); sweep++)
            for (int64_t p = 0; p < s; p++)
                for (int64_t q = p + 1; q < s; q++) rotate(p, q);
        int64_t top = 0;
        for (int64_t i = 1; i < s; i++)
            if (A[i * s + i] > A[top * s + top]) top = i;
        return top;
    }
};

__device__ double dot(const float *x, const float *y, int64_t K, int lane) {
    double sum = 0;
    for (int64_t k = lane; k < K; k += 32) sum += static_cast<double>(x[k]) * y[k];
    return warp_sum(sum);
}

// Gram matrix of the `pairs` rows x, or their moment matrix [K,K] where K < pairs.
__device__ void window_matrix(const mixer_task &a, const float *x, int64_t pairs, const jacobi &j) {
    if (pairs <= a.K) {
        for (int64_t p = 0; p < pairs; p++)
            for (int64_t q = 0; q <= p; q++) {
                const double gram = dot(x + p * a.Kp, x + q * a.Kp, a.K, j.lane);
                if (j.lane == 0) j.A[p * pairs + q] = j.A[q * pairs + p] = gram;
            }
    } else {
        for (int64_t i = j.lane; i < a.K * a.K; i += 32) {
            double sum = 0;
            for (int64_t p = 0; p < pairs; p++)
                sum += static_cast<double>(x[p * a.Kp + i / a.K]) * x[p * a.Kp + i % a.K];
            j.A[i] = sum;
        }
    }
    __syncwarp();
}

// z from u: u itself from a moment matrix, X^T u scaled to length 1 from a Gram matrix.
__device__ void eigenvector(const mixer_task &a, const float *x, int64_t pairs, const double *u, float *z, int lane) {
    double square = 0;
    for (int64_t k = lane; k < a.K; k += 32) {
        double along = 0;
        for (int64_t i = 0; pairs <= a.K && i < pairs; i++) along += u[i] * x[i * a.Kp + k];
        square += along * along;
    }
    const double scale = pairs <= a.K ? 1 / sqrt(warp_sum(square)) : 1;
    for (int64_t k = lane; k < a.K; k += 32) {
        double along = pairs <= a.K ? 0 : u[k];
        for (int64_t i = 0; pairs <= a.K && i < pairs; i++) along += u[i] * x[i * a.Kp + k];
        z[k] = static_cast<float>(scale * along);
    }
}

__device__ void top_step(const mixer_task &a, int64_t i, double *memory, int64_t most, int lane) {
    const int64_t t = i % a.T, head = i / a.T, b = head / a.Hq, pairs = a.pairs(b, t);
    float *z = a.z ? a.z + i * a.Kp : nullptr;
    for (int64_t k = lane; z && k < a.Kp; k += 32) z[k] = 0.0f;
    double energy = 0;
    if (pairs > 0) {
        const jacobi j = {memory, memory + most * most, min(pairs, a.K), lane};
        const float *x = a.xs + (head * a.rows + a.first_of(b, t)) * a.Kp;
        window_matrix(a, x, pairs, j);
        const int64_t top = j.solve();
        const double largest = j.A[top * j.s + top];
        if (largest > 0) {
            energy = largest / static_cast<double>(pairs);
            if (z) eigenvector(a, x, pairs, j.U + top * j.s, z, lane);
        }
    }
    if (lane == 0) a.energy[i] = energy;
    __syncwarp(everyone);
}

int64_t largest_matrix(const mixer_task &task) {
    const int64_t window = task.halo + 1 < task.rows ? task.halo + 1 : task.rows;
    return window < task.K ? window : task.K;
}

__global__ void __launch_bounds__(32) energy_top_kernel(const __grid_constant__ mixer_task a, int64_t most) {
    extern __shared__ double matrices[];
    double *memory = a.jacobi ? a.jacobi + blockIdx.x * 2 * most * most : matrices;
    each_row(a.B * a.Hq * a.T, [&](int64_t i) { top_step(a, i, memory, most, static_cast<int>(threadIdx.x)); });
}

} // namespace

namespace fwa {

size_t energy_work(const mixer_task &task) {
    const int64_t s = largest_matrix(task);
    if (task.energies != energy_kind::top || s <= shared_rows) return 0;
    return static_cast<size_t>(large_blocks * 2 * s * s) * sizeof(double);
}

fwa_status energy_forward(cudaStream_t stream, const mixer_task &task) {
    if (task.energies == energy_kind::mean) {
        FWA_LAUNCH(energy_norms_kernel, row_blocks(task.B * task.Hq * task.rows), map_threads, 0, stream, task);
        FWA_LAUNCH(energy_mean_kernel, element_blocks(task.B * task.Hq * task.T), map_threads, 0, stream, task);
        return FWA_OK;
    }
    const int64_t s = largest_matrix(task), steps = task.B * task.Hq * task.T;
    const int64_t most = task.jacobi ? large_blocks : 16384;
    const auto blocks = static_cast<unsigned>(steps < most ? steps : most);
    const size_t shared = task.jacobi ? 0 : static_cast<size_t>(2 * s * s) * sizeof(double);
    FWA_LAUNCH(energy_top_kernel, blocks, 32, shared, stream, task, s);
    return FWA_OK;
}

} // namespace fwa
