// The largest eigenvalue of a small symmetric matrix in a thread's registers, by Jacobi's rotations in fp32.
#ifndef FWA_KERNELS_CUDA_EIGENVALUE_CUH
#define FWA_KERNELS_CUDA_EIGENVALUE_CUH

#include "kernels/cuda/numeric.cuh"

namespace fwa {

// Makes A_pq 0, A symmetric.
template <int W> __device__ inline void rotate(float (&A)[W][W], float (&U)[W][W], int p, int q) {
    constexpr float most = 1e15f; // of the cotangent of twice the angle: its square is finite
    const float off = A[p][q], theta = fminf(fmaxf((A[q][q] - A[p][p]) * quick_reciprocal(2.0f * off), -most), most);
    const float square = theta * theta + 1.0f;
    const float turn = copysignf(quick_reciprocal(fabsf(theta) + square * rsqrtf(square)), theta);
    const float tangent = fabsf(off) < 1e-30f ? 0.0f : turn;
    const float c = rsqrtf(tangent * tangent + 1.0f), n = tangent * c;
    A[p][p] -= tangent * off, A[q][q] += tangent * off;
    A[p][q] = A[q][p] = 0.0f;
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float u = U[p][k], v = U[q][k];
        U[p][k] = c * u - n * v, U[q][k] = n * u + c * v;
        if (k == p || k == q) continue;
        const float x = A[k][p], y = A[k][q];
        A[k][p] = A[p][k] = c * x - n * y, A[k][q] = A[q][k] = n * x + c * y;
    }
}

// Largest eigenvalue of A, which is destroyed, and its unit eigenvector.
template <int W> __device__ inline float largest_eigenvalue(float (&A)[W][W], float (&top)[W]) {
    float U[W][W];
#pragma unroll
    for (int i = 0; i < W * W; i++) U[i / W][i % W] = i / W == i % W ? 1.0f : 0.0f;
    for (int sweep = 0; sweep < 12; sweep++) {
        float off = 0.0f, all = 0.0f;
#pragma unroll
        for (int i = 0; i < W; i++) {
            all += A[i][i] * A[i][i];
#pragma unroll
            for (int j = 0; j < i; j++) off += A[i][j] * A[i][j];
        }
        if (off <= 1e-12f * all) break;
#pragma unroll
        for (int p = 0; p < W; p++)
#pragma unroll
            for (int q = p + 1; q < W; q++) rotate<W>(A, U, p, q);
    }
    float largest = A[0][0];
#pragma unroll
    for (int k = 0; k < W; k++) top[k] = U[0][k];
#pragma unroll
    for (int i = 1; i < W; i++) {
        if (A[i][i] <= largest) continue;
        largest = A[i][i];
#pragma unroll
        for (int k = 0; k < W; k++) top[k] = U[i][k];
    }
    return largest;
}

} // namespace fwa
#endif
