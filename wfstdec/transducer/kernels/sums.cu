// Sums of probabilities in runs of adjacent elements, for `beam.py`; blocks are
// independent.
#include "block.cuh"
#include "log_add.cuh"

struct SumsTask {
    const double* score;  // [rows, columns]
    const bool* begins;   // likewise: a run begins here; every row begins with one
    double* total;        // likewise: of its run
    u32 rows, columns;
};

// A thread for each run: few have more than two.
extern "C" __global__ void sum_runs(const __grid_constant__ SumsTask task) {
    const u32 count = task.rows * task.columns;
    for (u32 first = blockIdx.x * blockDim.x + threadIdx.x; first < count;
         first += gridDim.x * blockDim.x) {
        if (!task.begins[first]) continue;
        u32 end = first + 1;
        double total = task.score[first];
        for (; end < count && !task.begins[end]; ++end)
            total = add_scores(total, task.score[end]);
        for (u32 i = first; i < end; ++i) task.total[i] = total;
    }
}
