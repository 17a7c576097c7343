/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_weight.c - rules about the data of quantized weights. One pass over each weight gathers
 * its facts (compare.h), a table of rules judges them. Where codes do not fit their source, other
 * tensors of the same shape are tried, to say which one was put in its place. */
#include "convert/compare.h"
#include "convert/verify.h"

#include <math.h>
#include <string.h>

/* A weight that is being judged. */
struct weight {
    fp8_values values, source; /* source.ckpt NULL: not to be compared */
    int64_t index;
    fp8_weight_facts facts;
};

/* Rule code-not-finite. */
static fp8_status judge_finite(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    (void)err;
    const fp8_weight_facts *f = &w->facts;
    if (f->not_finite)
        FP8_FOUND_ERROR(v, w->values.info.name,
                        "%lld of %lld codes are NaN or infinity, the first is element %lld",
                        (long long)f->not_finite, (long long)f->elements,
                        (long long)f->first_not_finite);
    return FP8_OK;
}

/* What misfits look like. */
enum misfit { MISFIT_NONE, MISFIT_CODES, MISFIT_SCALE, MISFIT_ALL };

/* A changed scale leaves the codes of its unit proportional to the source; a few changed codes
 * leave most of the unit as it should be. */
static enum misfit kind_of_misfit(const fp8_weight_facts *f)
{
    if (!f->compared || !f->misfits)
        return MISFIT_NONE;
    if (f->unit_misfits < 0.5)
        return MISFIT_CODES;
    return f->correlation > 0.9 ? MISFIT_SCALE : MISFIT_ALL;
}

/* Text for "element 5 = [0,5]". */
static void place_text(const fp8_values *v, int64_t element, char text[64])
{
    fp8_slabs slabs = fp8_slabs_of(v, true);
    fp8_error place;
    fp8_error_set(&place, FP8_OK, -1, "element %lld (row %lld, column %lld)", (long long)element,
                  (long long)(element / slabs.cols), (long long)(element % slabs.cols));
    memcpy(text, place.msg, 63);
    text[63] = 0;
}

/* Rule code-changed. */
static fp8_status judge_codes(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    (void)err;
    const fp8_weight_facts *f = &w->facts;
    char place[64];
    if (kind_of_misfit(f) != MISFIT_CODES)
        return FP8_OK;
    place_text(&w->values, f->first, place);
    FP8_FOUND_ERROR(v, w->values.info.name,
                    "%lld of %lld codes are not the nearest to the source, the first is %s: code "
                    "0x%02x is %g, the source %g needs 0x%02x",
                    (long long)f->misfits, (long long)f->elements, place, f->code, f->value,
                    f->source, f->fitting);
    return FP8_OK;
}

/* Rule scale-changed. */
static fp8_status judge_scale(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    (void)err;
    const fp8_weight_facts *f = &w->facts;
    char place[64];
    if (kind_of_misfit(f) != MISFIT_SCALE)
        return FP8_OK;
    place_text(&w->values, f->first, place);
    FP8_FOUND_ERROR(v, w->values.info.name,
                    "%s does not belong to the codes: from %s on, code * scale is %.4g times the "
                    "source; %lld of %lld codes do not fit",
                    w->values.scale.name, place, f->ratio != 0 ? 1 / f->ratio : 0,
                    (long long)f->misfits, (long long)f->elements);
    return FP8_OK;
}

/* Rule weight-differs. */
static fp8_status judge_values(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    (void)err;
    const fp8_weight_facts *f = &w->facts;
    if (kind_of_misfit(f) == MISFIT_ALL)
        FP8_FOUND_ERROR(v, w->values.info.name,
                        "this is not the source's tensor: %lld of %lld codes do not fit it, "
                        "correlation %.3f, largest error %g",
                        (long long)f->misfits, (long long)f->elements, f->correlation, f->worst);
    return FP8_OK;
}

/* Tensor `index` of the checkpoint as a quantized weight with its source; false if it is none, or
 * its source is not of its shape. */
static bool load_weight(fp8_verification *v, int64_t index, struct weight *w)
{
    memset(w, 0, sizeof *w);
    w->index = index;
    fp8_values_of(v->subject.ckpt, &v->subject.roles, index, &w->values);
    if (!fp8_values_quantized(&w->values))
        return false;
    int64_t at = v->source.ckpt ? fp8_subject_find(&v->source, &w->values.info) : -1;
    if (at < 0)
        return true;
    fp8_values_of(v->source.ckpt, &v->source.roles, at, &w->source);
    if (!fp8_same_shape(&w->values.info, &w->source.info))
        w->source.ckpt = NULL;
    return true;
}

static bool same_grid(const fp8_values *a, const fp8_values *b)
{
    return a->role->grid.rows == b->role->grid.rows && a->role->grid.cols == b->role->grid.cols &&
           a->role->scale == b->role->scale && a->info.dtype == b->info.dtype;
}

/* One way in which another tensor can have been mixed up with this one: which of the three that
 * make up the comparison are the other's. */
static const struct mixup {
    bool scale, source;
    const char *text;
} mixups[] = {
    {false, true, "codes and scale are those of"},
    {true, true, "the codes are those of"},
    {true, false, "the scale is that of"},
};

/* *found: `other` explains the codes of w. */
static fp8_status try_other(fp8_verification *v, const struct weight *w, const struct weight *other,
                            const struct mixup **found, fp8_error *err)
{
    for (size_t k = 0; k < sizeof mixups / sizeof *mixups && !*found; k++) {
        fp8_values codes = w->values;
        bool fits;
        if (mixups[k].scale)
            codes.scale = other->values.scale;
        v->searches++;
        FP8_TRY(fp8_compare_fits(&v->pool, &codes, mixups[k].source ? &other->source : &w->source,
                                 w->facts.first, &fits, err));
        if (fits)
            *found = &mixups[k];
    }
    return FP8_OK;
}

/* Rule swapped: another tensor of the same shape took the place of the codes or the scale. */
static fp8_status judge_swap(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    enum misfit kind = kind_of_misfit(&w->facts);
    const struct mixup *found = NULL;
    if (kind != MISFIT_SCALE && kind != MISFIT_ALL)
        return FP8_OK;
    for (int64_t i = 0; i < v->summary->tensors && !found && v->searches < FP8_MAX_SEARCHES; i++) {
        struct weight other;
        if (i == w->index || !load_weight(v, i, &other) || !other.source.ckpt ||
            !fp8_same_shape(&w->values.info, &other.values.info) ||
            !same_grid(&w->values, &other.values))
            continue;
        FP8_TRY(try_other(v, w, &other, &found, err));
        if (found)
            FP8_FOUND_ERROR(v, w->values.info.name, "%s %s", found->text, other.values.info.name);
    }
    return FP8_OK;
}

/* Rule sqnr-low, a warning. Values in the normal range of a format of m mantissa bits have relative
 * errors of at most 2^-(m+1), so an SQNR of at least 6.02 (m+1) dB; less means that much of the
 * signal is below that range, or saturated. */
static fp8_status judge_sqnr(fp8_verification *v, const struct weight *w, fp8_error *err)
{
    (void)err;
    const fp8_weight_facts *f = &w->facts;
    fp8_dtype dtype = w->values.info.dtype;
    bool e5m2 = dtype == FP8_E5M2 || dtype == FP8_E5M2FNUZ;
    double least = 20 * log10(2) * (e5m2 ? 3 : 4), sqnr = fp8_sqnr_db(f->signal, f->noise);
    if (f->compared && !f->misfits && sqnr < least)
        FP8_FOUND_WARNING(v, w->values.info.name,
                          "SQNR is %.2f dB, under the %.2f dB that normal numbers have: the scale "
                          "does not suit the values (%lld of %lld codes are zero, %lld saturated)",
                          sqnr, least, (long long)(f->elements - f->nonzero),
                          (long long)f->elements, (long long)f->saturated);
    return FP8_OK;
}

static const struct {
    const char *name;
    fp8_status (*judge)(fp8_verification *v, const struct weight *w, fp8_error *err);
} weight_rules[] = {
    {"code-not-finite", judge_finite}, {"code-changed", judge_codes},
    {"scale-changed", judge_scale},    {"weight-differs", judge_values},
    {"swapped", judge_swap},           {"sqnr-low", judge_sqnr},
};

/* All rules on all quantized weights that can be read. */
fp8_status fp8_verify_weights(fp8_verification *v, fp8_error *err)
{
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        struct weight w;
        if (!load_weight(v, i, &w))
            continue;
        FP8_TRY(fp8_compare_weight(&v->pool, &w.values, w.source.ckpt ? &w.source : NULL, &w.facts,
                                   err));
        if (w.facts.compared) {
            v->sqnr[v->sqnr_count++] = fp8_sqnr_db(w.facts.signal, w.facts.noise);
            v->summary->compared++;
        }
        for (size_t k = 0; k < sizeof weight_rules / sizeof *weight_rules; k++) {
            v->rule = weight_rules[k].name;
            FP8_TRY(weight_rules[k].judge(v, &w, err));
        }
    }
    return FP8_OK;
}
