/* SPDX-License-Identifier: Apache-2.0
 *
 * dependent.cuh - launches that overlap (programmatic dependent launch), from compute capability
 * 9.0 on. */
#ifndef FP8_KERNELS_DEPENDENT_CUH
#define FP8_KERNELS_DEPENDENT_CUH

/* A kernel that depends on this may start, and wait for the end of this. */
__device__ static inline void let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* This has started before the end of what it depends on; addresses are reckoned meanwhile. */
__device__ static inline void wait_for_input(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
