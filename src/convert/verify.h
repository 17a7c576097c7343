/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h - what the rules of fp8_verify share. A rule has a name, which is what its findings are
 * called, and a small function; three tables hold them all:
 *
 *     verify.c         rules about the checkpoint as a whole
 *     verify_weight.c  rules about the facts that one pass over a weight's data gathers
 *     verify_engine.c  rules of an engine
 *
 * A rule reports what it finds and goes on; its status says only whether it could look. */
#ifndef FP8_CONVERT_VERIFY_H
#define FP8_CONVERT_VERIFY_H

#include "convert/values.h"

enum { FP8_MAX_SEARCHES = 4096 }; /* in all, so that a hopeless case ends */

/* An open checkpoint with all that is known about it from its headers and config.json. */
typedef struct fp8_subject {
    fp8_checkpoint *ckpt;
    fp8_roles roles;
    fp8_config config;
} fp8_subject;

typedef struct fp8_verification {
    const fp8_context *ctx;
    const fp8_verify_desc *desc;
    fp8_finding_fn fn;
    void *user;
    fp8_verify_summary *summary;
    const char *rule; /* that is being checked: names the findings */
    fp8_subject subject;
    fp8_subject source; /* ckpt NULL without --against */
    fp8_slab_pool pool;
    double *sqnr; /* [summary->quantized]: of the weights compared so far */
    int64_t sqnr_count;
    const fp8_dialect *refused; /* that the engine does not load: nothing more is said of it */
    bool config_broken;         /* a pattern that takes too much work was found */
    int64_t searches;           /* tries of other tensors in the place of one that does not fit */
} fp8_verification;

typedef fp8_status (*fp8_verify_fn)(fp8_verification *v, fp8_error *err);

typedef struct fp8_verify_rule {
    const char *name;
    fp8_verify_fn check;
} fp8_verify_rule;

/* Counts a finding of the rule being checked and hands it to the caller. tensor: NULL if it is
 * about none. */
void fp8_found(fp8_verification *v, bool is_error, const char *tensor, const char *message);

#define FP8_FOUND(v, is_error, tensor, ...)               \
    do {                                                  \
        fp8_error found_;                                 \
        fp8_error_set(&found_, FP8_OK, -1, __VA_ARGS__);  \
        fp8_found((v), (is_error), (tensor), found_.msg); \
    } while (0)

#define FP8_FOUND_ERROR(v, tensor, ...)   FP8_FOUND(v, true, tensor, __VA_ARGS__)
#define FP8_FOUND_WARNING(v, tensor, ...) FP8_FOUND(v, false, tensor, __VA_ARGS__)

/* Tensor i of the checkpoint that is verified. */
fp8_tensor_info fp8_subject_tensor(const fp8_subject *s, int64_t i);
/* Index of the tensor called as info says, -1 if there is none. */
int64_t fp8_subject_find(const fp8_subject *s, const fp8_tensor_info *info);
/* "[2,3]" into text. */
void fp8_shape_text(const fp8_tensor_info *info, char text[64]);

/* Rules, each in the file after which its group is named. */
fp8_status fp8_verify_index(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_index_unlisted(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_leftover(fp8_verification *v, fp8_error *err);

fp8_status fp8_verify_config_missing(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_plain_cast(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_config_unknown(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_nothing_quantized(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_activation_scheme(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_config_format(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_input_scale(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_ignore_missing(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_ignore_quantized(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_ignore_unmatched(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_tied_head(fp8_verification *v, fp8_error *err);

fp8_status fp8_verify_roles(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_scale_value(fp8_verification *v, fp8_error *err);

fp8_status fp8_verify_weights(fp8_verification *v, fp8_error *err);

fp8_status fp8_verify_tensor_missing(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_tensor_extra(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_tensor_shape(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_kept(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_config_changed(fp8_verification *v, fp8_error *err);
fp8_status fp8_verify_file_missing(fp8_verification *v, fp8_error *err);

fp8_status fp8_verify_for_engine(fp8_verification *v, fp8_error *err);

#endif
