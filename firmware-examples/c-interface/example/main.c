/* The core from C, on a bare CPU: quantised weights where they lie, packed ones, a matrix product, and calls that must be
   refused. Returns the number of what went wrong. */
#include "gllm_kernels.h"

void host_write(const char *text);

enum { ROWS = 24, COLS = 256, BATCH = 2, Q4_0 = 2, M = 5, N = 7, K = 9 };

static uint8_t weights[ROWS * COLS / 32 * 18];
static uint8_t packed[32 * COLS + 256];
static uint8_t scratch[256 << 10] __attribute__((aligned(64)));
static float x[BATCH * COLS], decoded[ROWS * COLS], y[BATCH * ROWS], z[BATCH * ROWS];
static float a[M * K], b[K * N], c[M * N];

static int wrong;

static void check(const char *what, int right)
{
    if (!right) {
        host_write("FAILED: ");
        host_write(what);
        host_write("\n");
        wrong++;
    }
}

static int close_to(float got, float want, float magnitude)
{
    float d = got - want;
    return d <= 1e-5f * magnitude && -d <= 1e-5f * magnitude;
}

static uint32_t random_bits(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

int main(void)
{
    GllmKernels best, baseline, portable;
    size_t bytes = 0;

    check("detect", gllm_detect(&best) == GLLM_STATUS_OK && gllm_portable(&portable) == GLLM_STATUS_OK
                        && gllm_baseline(&baseline) == GLLM_STATUS_OK);

    /* Blocks of Q4_0: a scale of f16 between 1 and 2, 32 codes of 4 bits. */
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (uint8_t)random_bits();
    for (size_t i = 1; i < sizeof weights; i += 18) weights[i] = 0x3c | (weights[i] & 3);
    /* Whole numbers, with 127 among each 32: rounding to 8 bits changes nothing. */
    for (size_t i = 0; i < BATCH * COLS; i++) x[i] = i % 32 == 0 ? 127.0f : (float)(random_bits() % 255) - 127.0f;

    check("row_bytes", gllm_row_bytes(Q4_0, COLS, &bytes) == GLLM_STATUS_OK && bytes * ROWS == sizeof weights);
    check("dequant", gllm_dequant(&best, Q4_0, ROWS, COLS, weights, decoded) == GLLM_STATUS_OK);
    {
        float first[COLS]; /* Results go to memory that was not initialised. */
        check("dequant by the baseline", gllm_dequant(&baseline, Q4_0, 1, COLS, weights, first) == GLLM_STATUS_OK);
        for (size_t i = 0; i < COLS; i++) check("a weight", first[i] == decoded[i]);
    }
    check("qgemm_scratch",
          gllm_qgemm_scratch(&best, Q4_0, ROWS, COLS, BATCH, &bytes) == GLLM_STATUS_OK && bytes <= sizeof scratch);
    check("qgemm", gllm_qgemm(&best, Q4_0, ROWS, COLS, weights, BATCH, x, y, scratch, bytes) == GLLM_STATUS_OK);
    check("packed_bytes", gllm_packed_bytes(&best, Q4_0, ROWS, COLS, &bytes) == GLLM_STATUS_OK && bytes <= sizeof packed);
    check("pack", gllm_pack(&best, Q4_0, ROWS, COLS, weights, packed, bytes) == GLLM_STATUS_OK);
    check("qgemm_packed",
          gllm_qgemm_packed(&best, Q4_0, ROWS, COLS, packed, bytes, BATCH, x, z, scratch, sizeof scratch) == GLLM_STATUS_OK);
    for (size_t m = 0; m < BATCH; m++)
        for (size_t r = 0; r < ROWS; r++) {
            float sum = 0, magnitude = 0;
            for (size_t k = 0; k < COLS; k++) {
                float p = decoded[r * COLS + k] * x[m * COLS + k];
                sum += p;
                magnitude += p < 0 ? -p : p;
            }
            check("product in place", close_to(y[m * ROWS + r], sum, magnitude));
            check("product of packed weights", close_to(z[m * ROWS + r], sum, magnitude));
        }

    for (size_t i = 0; i < M * K; i++) a[i] = (float)(random_bits() % 7) - 3;
    for (size_t i = 0; i < K * N; i++) b[i] = (float)(random_bits() % 7) - 3;
    check("gemm_scratch", gllm_gemm_scratch(&best, M, N, K, &bytes) == GLLM_STATUS_OK && bytes <= sizeof scratch);
    check("gemm", gllm_gemm(&best, M, N, K, 1, a, b, 0, c, scratch, sizeof scratch) == GLLM_STATUS_OK);
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            float sum = 0;
            for (size_t k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
            check("matrix product", c[i * N + j] == sum);
        }

    /* Refused, not executed. */
    check("null", gllm_softmax(&best, 4, NULL) == GLLM_STATUS_NULL);
    check("format", gllm_row_bytes(3000, COLS, &bytes) == GLLM_STATUS_FORMAT);
    check("blocks", gllm_row_bytes(Q4_0, 33, &bytes) == GLLM_STATUS_DIMENSION);
    check("scratch", gllm_qgemm(&best, Q4_0, ROWS, COLS, weights, BATCH, x, y, scratch, 100) == GLLM_STATUS_SHORT);
    packed[0] ^= 1;
    check("header", gllm_qgemm_packed(&best, Q4_0, ROWS, COLS, packed, sizeof packed, BATCH, x, z, scratch, sizeof scratch)
                        == GLLM_STATUS_PACKING);

    host_write(wrong ? "c-example: failed\n" : "c-example: passed\n");
    return wrong;
}
