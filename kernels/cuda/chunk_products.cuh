// Products of tiles for the chunk kernels, on those of a warpgroup (wgmma.cuh): d (+)= a b with a 64xK, b KxN, each
// operand contracted along the columns of its tile or along its rows. Tiles are rows of 64 elements, swizzled, on
// multiples of 1024 bytes; wider matrices are several, one behind the other. d[4 j ..] are columns 8 j .. 8 j + 7 of
// the fragment that a thread has of D.
//
// Writes of threads to shared memory reach the products after publish() and a barrier. On machines other than sm_90a
// the code ends the kernel with a trap: the host never starts it there.
#ifndef FWA_KERNELS_CUDA_CHUNK_PRODUCTS_CUH
#define FWA_KERNELS_CUDA_CHUNK_PRODUCTS_CUH

#include "kernels/cuda/wgmma.cuh"

#if FWA_WGMMA
#define FWA_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define FWA_SM90A(...) __trap()
#endif

namespace fwa {

// Element (0, k) of a matrix [64,n], in tiles of 64 columns.
__host__ __device__ constexpr int tile_column(int k) {
    return k / 64 * 4096 + k % 64;
}

// Descriptors of operands with 128-byte swizzle, by the place of their tile in units of 16 bytes of shared memory, and
// the element in the tile where they start. Sums of few numbers: registers are scarce where products run.
struct operand_tile {
    uint32_t at;
    __device__ explicit operand_tile(const __nv_bfloat16 *tile) : at(shared_address(tile) >> 4) {}
    __device__ operand_tile(const operand_tile &from, int elements)
        : at(from.at + static_cast<uint32_t>(elements) / 8) {}
    // Found anew where it stands, so that it is not prepared, and held in a register, in front of a phase.
    __device__ static operand_tile anew(const __nv_bfloat16 *tile) {
        operand_tile to(tile);
        asm volatile("" : "+r"(to.at));
        return to;
    }

    // Contracted along columns: 16 columns a product.
    __device__ uint64_t k(int element) const {
        return make(static_cast<uint32_t>(element), 1);
    }
    // Contracted along rows: 16 rows a product. `rows`: of the tile, where the operand is wider than 64 columns.
    __device__ uint64_t mn(int element, uint32_t rows) const {
        return make(static_cast<uint32_t>(element), rows * 8);
    }

  private:
    __device__ uint64_t make(uint32_t element, uint32_t leading) const {
        uint64_t descriptor;
        asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(at + (element / 8 | leading << 16)), "r"(64u | 1u << 30));
        return descriptor;
    }
};

// Before the first product, after registers of one were changed; behind the last; until all but `groups` are done.
__device__ inline void products_begin() {
    FWA_SM90A("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
    FWA_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups> __device__ inline void products_wait() {
    FWA_SM90A("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// Keeps the compiler from reading accumulators before the wait.
template <int n> __device__ inline void products_done(float (&d)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// In front of products_begin(): keeps the compiler from changing accumulators or first operands behind it, where it
// would have to wait between products.
template <int n> __device__ inline void products_ready(float (&d)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int n> __device__ inline void products_ready(uint32_t (&a)[n][4]) {
#pragma unroll
    for (int i = 0; i < n * 4; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
__device__ inline void publish() {
    FWA_SM90A("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier of `threads` threads, whole warps, that name the same `id` from 1 to 15.
__device__ inline void barrier_of(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts the warp in without waiting.
__device__ inline void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#define FWA_D4(i)  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define FWA_D16(i) FWA_D4(i), FWA_D4((i) + 4), FWA_D4((i) + 8), FWA_D4((i) + 12)
#define FWA_N32    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define FWA_N64    FWA_N32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define FWA_N128                                                                                                       \
    FWA_N64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"    \
            "%57,%58,%59,%60,%61,%62,%63"
#define FWA_PRODUCT(n, names, rest)                                                                                    \
    "{.reg .pred p; setp.ne.b32 p, " rest " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, "

// d (+)= a b: both operands in shared memory; a_mn, b_mn: contracted along rows. `add` false: d is overwritten.
template <int N, int a_mn, int b_mn>
__device__ inline void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) {
    if constexpr (N == 32)
        FWA_SM90A(FWA_PRODUCT(32, FWA_N32, "%18, 0;") "%16, %17, p, 1, 1, %19, %20;}"
                  : FWA_D16(0)
                  : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(a_mn), "n"(b_mn)
                  : "memory");
    else if constexpr (N == 64)
        FWA_SM90A(FWA_PRODUCT(64, FWA_N64, "%34, 0;") "%32, %33, p, 1, 1, %35, %36;}"
                  : FWA_D16(0), FWA_D16(16)
                  : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(a_mn), "n"(b_mn)
                  : "memory");
    else
        FWA_SM90A(FWA_PRODUCT(128, FWA_N128, "%66, 0;") "%64, %65, p, 1, 1, %67, %68;}"
                  : FWA_D16(0), FWA_D16(16), FWA_D16(32), FWA_D16(48)
                  : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(a_mn), "n"(b_mn)
                  : "memory");
}

// The same with the first operand in registers.
template <int N, int b_mn>
__device__ inline void product(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add) {
    if constexpr (N == 32)
        FWA_SM90A(FWA_PRODUCT(32, FWA_N32, "%21, 0;") "{%16,%17,%18,%19}, %20, p, 1, 1, %22;}"
                  : FWA_D16(0)
                  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(b_mn)
                  : "memory");
    else if constexpr (N == 64)
        FWA_SM90A(FWA_PRODUCT(64, FWA_N64, "%37, 0;") "{%32,%33,%34,%35}, %36, p, 1, 1, %38;}"
                  : FWA_D16(0), FWA_D16(16)
                  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(b_mn)
                  : "memory");
    else
        FWA_SM90A(FWA_PRODUCT(128, FWA_N128, "%69, 0;") "{%64,%65,%66,%67}, %68, p, 1, 1, %70;}"
                  : FWA_D16(0), FWA_D16(16), FWA_D16(32), FWA_D16(48)
                  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(b_mn)
                  : "memory");
}

// d = a b^T of tiles [64,K], which starts in products that are begun and stays under way; as a whole.
template <int K>
__device__ inline void tile_product_start(float (&d)[32], const operand_tile &a, const operand_tile &b) {
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        const int at = tile_column(k);
        product<64, 0, 0>(d, a.k(at), b.k(at), k > 0);
    }
    products_commit();
}
template <int K> __device__ inline void tile_product(float (&d)[32], const operand_tile &a, const operand_tile &b) {
    products_begin();
    tile_product_start<K>(d, a, b);
    products_wait<0>();
    products_done(d);
}

#undef FWA_D4
#undef FWA_D16
#undef FWA_N32
#undef FWA_N64
#undef FWA_N128
#undef FWA_PRODUCT

// Four 8x8 matrices of 16-bit elements into shared memory; lane 8 i + j gives the address of row j of matrix i.
__device__ inline void store_matrix(void *row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    FWA_SM90A("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(a),
              "r"(b), "r"(c), "r"(d)
              : "memory");
}
__device__ inline void store_matrix_transposed(void *row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    FWA_SM90A("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)), "r"(a),
              "r"(b), "r"(c), "r"(d)
              : "memory");
}

} // namespace fwa
#endif
