/* What every placement of one request costs, and which of them is chosen.
 *
 * The same sums in the same order as the array operations of scores.py, estimates.py and pick.py, so
 * that all numbers are equal to the last bit; compile it without contracting a product and a sum.
 * Fields of all structures are 8 bytes wide, as native_scores.py packs them.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Rows of the workers' values, as WorkerColumns has them. */
enum {
    DRY_AT, COMPUTES_UNTIL, TOKEN_SECONDS, NEAR_SECONDS, FAR_SECONDS, STEP_SECONDS, STREAM_SECONDS,
    BATCH_SECONDS, WAITING, FREE_PAGES, TOTAL_PAGES, CHUNK_TOKENS, CHUNK_TOKEN_SECONDS,
    ITL_TARGET, ITL_TARGET_OF_REST
};

/* Rows of an estimate, as PrefillColumns has them. */
enum { ENGINE, LOCAL, REMOTE, UNCACHED, QUEUE, TRANSFER, COMPUTE, DELAY, TOTAL, ESTIMATES };

/* Rows of decode workers, and of pairs. */
enum { SCORE, STEPS, WAIT, SLOWDOWN, OF_DECODES };
enum { PAIR_SCORE, PAIR_STEPS, TRAVEL, OF_PAIRS };

typedef struct {
    int64_t workers, several_layouts;
    const double *values; /* [15][workers] */
    const uint8_t *beside, *can_prefill, *can_decode;
    const int64_t *stores, *layouts;
    const double *block_tokens;
    const uint64_t *id_hashes;
} Workers;

typedef struct {
    const int64_t *decodes; /* rows that are compared */
    int64_t decode_count;
    const int64_t *takers; /* rows that KV may be handed over to, and where they are in `decodes` */
    const int64_t *taker_at;
    int64_t taker_count;
    const int64_t *prefills; /* rows that hand KV over */
    int64_t prefill_count;
} Rows;

typedef struct {
    int64_t prompt_tokens, output_tokens, seed, layouts, turns, pairs, always, max_prefills, resume_min;
    double now, last_chunk, slowdown_weight, stream_tokens, itl_target, tie_seconds, tie_share, pages;
} Query;

/* Who holds the runs of a match, of the workers of one layout. `kinds` is [run][4][workers]: own
 * pages, own store, elsewhere, any. */
typedef struct {
    int64_t layout, runs;
    const uint8_t *kinds;
    const int64_t *sole_stores;
    int64_t first; /* of all runs, whose blocks come after the layouts */
} Held;

typedef struct {
    int64_t row;
    double seconds, delay; /* by which a second of computing delays others */
} Turn;

/* What is found, before it is told. */
typedef struct {
    int64_t prefill_at, decode_at; /* chosen; prefill_at is -1 where no prefill worker takes part */
    int64_t resumes, has_pairs, prefills, adapted;
    int64_t rest[]; /* rows of prefill workers, then numbers of stores that are adapted to */
} Found;

static double at_least(double value, double least) { return value > least ? value : least; }
static double at_most(double value, double most) { return value < most ? value : most; }

static double blocks_of(const Held *held, const Query *query, const Held *one, int64_t run) {
    return (double)((const int64_t *)(held + query->layouts))[one->first + run];
}

/* Pages of a prompt, kept for the workers that come next: few have blocks of another size. */
typedef struct {
    double block_tokens, pages;
} Pages;

static double pages_of(Pages *kept, int64_t tokens, double block_tokens) {
    if (kept->block_tokens != block_tokens) {
        int64_t block = (int64_t)block_tokens;
        *kept = (Pages){block_tokens, (double)((tokens + block - 1) / block)};
    }
    return kept->pages;
}

/* Fill in `count` rows of workers whose queues and held blocks are there. */
static void estimate(const Workers *all, int64_t row, int64_t count, int64_t tokens,
                     const double *restrict delays, double *restrict made, int64_t stride) {
    const double *restrict block_tokens = all->block_tokens + row;
    const double *restrict token_seconds = all->values + TOKEN_SECONDS * all->workers + row;
    const double *restrict near = all->values + NEAR_SECONDS * all->workers + row;
    const double *restrict far = all->values + FAR_SECONDS * all->workers + row;
    for (int64_t at = 0; at < count; at++) {
        double engine = made[ENGINE * stride + at], local = made[LOCAL * stride + at];
        double remote = made[REMOTE * stride + at], queue = made[QUEUE * stride + at];
        double blocks = engine + local + remote;
        double uncached = at_least(blocks * -block_tokens[at] + (double)tokens, 1.0);
        double compute = uncached * token_seconds[at];
        double transfer = at_least(local * near[at] + remote * far[at] - queue, 0.0);
        made[UNCACHED * stride + at] = uncached;
        made[TRANSFER * stride + at] = transfer;
        made[COMPUTE * stride + at] = compute;
        made[DELAY * stride + at] = delays[at] * compute;
        made[TOTAL * stride + at] = queue + compute + transfer;
    }
}

/* Return how long streams wait for a token beside a chunk of the prompt; 0: none run. */
static double step_seconds(const Workers *all, int64_t row, double uncached) {
    const double *values = all->values + row;
    if (!all->beside[row])
        return 0.0;
    return values[STEP_SECONDS * all->workers] + at_most(values[CHUNK_TOKENS * all->workers], uncached) *
                                                     values[CHUNK_TOKEN_SECONDS * all->workers];
}

/* Estimate all workers; `delays` is by worker, of requests that are passed. */
static void estimate_all(const Workers *all, const Query *query, const Held *held, const Turn *turns,
                         double *delays, double *made) {
    int64_t count = all->workers;
    const double *dry_at = all->values + DRY_AT * count;
    const double *until = all->values + COMPUTES_UNTIL * count;
    double *queue = made + QUEUE * count;
    for (int64_t row = 0; row < count; row++) {
        queue[row] = at_least(dry_at[row] - at_most(until[row], query->now), 0.0);
        delays[row] = 0.0;
    }
    for (int64_t at = 0; at < query->turns; at++) {
        queue[turns[at].row] = at_least(queue[turns[at].row] + turns[at].seconds, 0.0);
        delays[turns[at].row] = turns[at].delay;
    }
    for (int64_t at = 0; at < 3 * count; at++)
        made[at] = 0.0;
    for (const Held *one = held; one < held + query->layouts; one++)
        for (int64_t run = 0; run < one->runs; run++) {
            const uint8_t *kinds = one->kinds + run * 4 * count;
            double blocks = blocks_of(held, query, one, run);
            if (all->several_layouts)
                for (int64_t kind = 0; kind < 3; kind++)
                    for (int64_t row = 0; row < count; row++)
                        made[kind * count + row] +=
                            all->layouts[row] == one->layout ? blocks * kinds[kind * count + row] : 0.0;
            else
                for (int64_t at = 0; at < 3 * count; at++)
                    made[at] += blocks * kinds[at];
        }
    estimate(all, 0, count, query->prompt_tokens + query->output_tokens, delays, made, count);
}

/* Estimate again, of the prompt alone. */
static void estimate_prompt(const Workers *all, const Query *query, const double *delays,
                            const double *whole, double *made) {
    int64_t count = all->workers;
    for (int64_t at = 0; at < ESTIMATES * count; at++)
        made[at] = whole[at];
    estimate(all, 0, count, query->prompt_tokens, delays, made, count);
}

/* Score decode workers by themselves; return whether the request resumes with little uncached. */
static int score_alone(const Workers *all, const Rows *rows, const Query *query, const double *pages,
                       const double *prefill, double *made) {
    int64_t workers = all->workers, count = rows->decode_count;
    int resumes = query->output_tokens > 0;
    for (int64_t at = 0; at < count; at++) {
        int64_t row = rows->decodes[at];
        const double *values = all->values + row;
        double ahead = values[WAITING * workers] + (values[FREE_PAGES * workers] < (pages ? pages[row] : query->pages));
        double wait = ahead * values[STREAM_SECONDS * workers] * query->stream_tokens;
        double slowdown = query->slowdown_weight * values[BATCH_SECONDS * workers];
        double uncached = prefill[UNCACHED * workers + row];
        double score = prefill[TOTAL * workers + row] + slowdown;
        score += at_least(wait - prefill[QUEUE * workers + row], 0.0);
        made[SCORE * count + at] = score + prefill[DELAY * workers + row];
        made[STEPS * count + at] = step_seconds(all, row, uncached);
        made[WAIT * count + at] = wait;
        made[SLOWDOWN * count + at] = slowdown;
        if (uncached - (double)query->output_tokens >= (double)query->resume_min)
            resumes = 0;
    }
    return resumes;
}

/* Find the prefill workers that are best by themselves, in the order of rows; return how many. */
static int64_t shortlist(const Workers *all, const Rows *rows, const Query *query, const double *prefill,
                         double *costs, int64_t *best) {
    int64_t workers = all->workers, most = query->max_prefills, found = 0;
    Pages kept = {0.0, 0.0};
    for (int64_t at = 0; at < rows->prefill_count; at++) {
        int64_t row = rows->prefills[at], place = found;
        if (pages_of(&kept, query->prompt_tokens, all->block_tokens[row]) >
            all->values[TOTAL_PAGES * workers + row])
            continue;
        double cost = prefill[TOTAL * workers + row] + prefill[DELAY * workers + row];
        if (found == most && (!most || cost >= costs[most - 1]))
            continue;
        if (found < most)
            found++;
        else
            place--;
        for (; place && costs[place - 1] > cost; place--) {
            costs[place] = costs[place - 1];
            best[place] = best[place - 1];
        }
        costs[place] = cost;
        best[place] = row;
    }
    for (int64_t at = 1; at < found; at++) { /* few: by insertion */
        int64_t row = best[at], place = at;
        for (; place && best[place - 1] > row; place--)
            best[place] = best[place - 1];
        best[place] = row;
    }
    return found;
}

/* Estimate a prefill worker that does not fetch from a store; return whether it would, and that
 * matters: the store alone has some run of the match. */
static int estimate_without(const Workers *all, const Query *query, const Held *held, int64_t store,
                            int64_t row, const double *prefill, const double *delays, double *made,
                            int64_t stride) {
    int64_t workers = all->workers;
    if (all->stores[row] == store)
        return 0;
    for (const Held *one = held; one < held + query->layouts; one++) {
        if (one->layout != all->layouts[row])
            continue;
        double kept[3] = {0.0, 0.0, 0.0};
        for (int64_t run = 0; run < one->runs; run++) {
            const uint8_t *kinds = one->kinds + run * 4 * workers + row;
            if (one->sole_stores[run] == store && kinds[REMOTE * workers] > 0) {
                /* What comes before a run that nothing else has is all that is left. */
                for (int64_t kind = 0; kind < 3; kind++)
                    made[kind * stride] = kept[kind];
                made[QUEUE * stride] = prefill[QUEUE * workers + row];
                estimate(all, row, 1, query->prompt_tokens, delays + row, made, stride);
                return 1;
            }
            for (int64_t kind = 0; kind < 3; kind++)
                kept[kind] += blocks_of(held, query, one, run) * kinds[kind * workers];
        }
    }
    return 0;
}

/* What a decode worker adds to any pair, by decode worker. */
typedef struct {
    double *near, *far, *wait, *slowdown, *resume;
    int64_t *store;
} Takers;

/* Score one prefill worker with decode workers that KV can be handed over to. */
static void score_row(const Query *query, const Takers *takers, int64_t count, int64_t store, double first,
                      double delay, double *restrict travels, double *restrict scores) {
    double share = query->last_chunk;
    const double *restrict near = takers->near, *restrict far = takers->far, *restrict wait = takers->wait;
    const double *restrict slowdown = takers->slowdown, *restrict resume = takers->resume;
    const int64_t *restrict stores = takers->store;
    for (int64_t at = 0; at < count; at++) {
        double travel = stores[at] == store ? near[at] : far[at];
        /* Blocks travel while the rest is computed, all but the last chunk. */
        double found = at_least(first + travel * share, travel);
        found = at_least(found, wait[at]);
        travels[at] = travel;
        scores[at] = found + slowdown[at] + resume[at] + delay;
    }
}

/* Score the pairs of the shortlist; return whether there are any. */
static int score_pairs(const Workers *all, const Rows *rows, const Query *query, const Held *held,
                       const double *whole, const double *prompt, const double *delays,
                       const double *alone, double *scratch, double *resume, double *made, Found *found) {
    int64_t workers = all->workers, count = rows->taker_count, decodes = rows->decode_count;
    Takers takers = {scratch, scratch + count, scratch + 2 * count, scratch + 3 * count, resume,
                     (int64_t *)(scratch + 4 * count)};
    int64_t *prefills = found->rest;
    int64_t listed = shortlist(all, rows, query, prompt, scratch + 5 * count, prefills);
    found->prefills = listed;
    if (!listed || !count)
        return 0;
    Pages kept = {0.0, 0.0};
    for (int64_t at = 0; at < count; at++) {
        int64_t row = rows->takers[at], of = rows->taker_at[at];
        const double *values = all->values + row;
        double pages = pages_of(&kept, query->prompt_tokens, all->block_tokens[row]);
        double missing = at_least(pages - whole[ENGINE * workers + row], 0.0);
        double local = at_most(whole[LOCAL * workers + row], missing);
        double near = values[NEAR_SECONDS * workers], far = values[FAR_SECONDS * workers];
        takers.near[at] = missing * near;
        takers.far[at] = local * near + (missing - local) * far;
        takers.wait[at] = alone[WAIT * decodes + of];
        takers.slowdown[at] = alone[SLOWDOWN * decodes + of];
        takers.resume[at] = (double)query->output_tokens * values[TOKEN_SECONDS * workers];
        takers.store[at] = all->stores[row];
    }
    double *scores = made, *steps = made + listed * count, *travel = made + 2 * listed * count;
    for (int64_t at = 0; at < listed; at++) {
        int64_t row = prefills[at];
        double step = step_seconds(all, row, prompt[UNCACHED * workers + row]);
        score_row(query, &takers, count, all->stores[row], prompt[TOTAL * workers + row],
                  prompt[DELAY * workers + row], travel + at * count, scores + at * count);
        for (int64_t to = 0; to < count; to++)
            steps[at * count + to] = step;
    }
    /* One list of sources serves both workers, and the decode worker's store is not in it: what only
     * that store has is computed. */
    int64_t *adapted = prefills + query->max_prefills;
    double *estimates = made + OF_PAIRS * listed * count;
    found->adapted = 0;
    for (const Held *one = held; one < held + query->layouts; one++)
        for (int64_t run = 0; run < one->runs; run++) {
            int64_t store = one->sole_stores[run], known = store < 0, any = 0;
            for (int64_t at = 0; at < found->adapted; at++)
                known |= adapted[at] == store;
            int64_t takes = 0;
            while (takes < count && takers.store[takes] != store)
                takes++;
            if (known || takes == count)
                continue;
            double *here = estimates + found->adapted * (ESTIMATES + 1) * listed;
            for (int64_t at = 0; at < listed; at++) {
                int64_t row = prefills[at];
                double *one_made = here + listed + at;
                int changed = estimate_without(all, query, held, store, row, prompt, delays, one_made,
                                               listed);
                here[at] = changed;
                any |= changed;
                if (!changed)
                    continue;
                double step = step_seconds(all, row, one_made[UNCACHED * listed]);
                for (int64_t to = 0; to < count; to++)
                    if (takers.store[to] == store) {
                        score_row(query, &(Takers){takers.near + to, takers.far + to, takers.wait + to,
                                                   takers.slowdown + to, takers.resume + to,
                                                   takers.store + to},
                                  1, all->stores[row], one_made[TOTAL * listed],
                                  one_made[DELAY * listed], travel + at * count + to,
                                  scores + at * count + to);
                        steps[at * count + to] = step;
                    }
            }
            if (any)
                adapted[found->adapted++] = store;
        }
    int any = 0;
    for (int64_t at = 0; at < listed; at++) {
        int64_t row = prefills[at];
        if (!all->can_decode[row] && !all->several_layouts) {
            any = 1;
            continue;
        }
        for (int64_t to = 0; to < count; to++) {
            int64_t decode = rows->takers[to];
            /* Two that both prefill and decode would wait for each other's pages. */
            if ((all->can_decode[row] && all->can_prefill[decode]) ||
                all->layouts[row] != all->layouts[decode])
                scores[at * count + to] = INFINITY;
            else
                any = 1;
        }
    }
    return any;
}

/* Return how long the streams of a worker may wait for a token; `limited` is 0: for any time. */
static double itl_limit(const Workers *all, const Query *query, int64_t row, int limited) {
    const double *values = all->values + row;
    double rest = values[ITL_TARGET_OF_REST * all->workers] + query->itl_target;
    return limited ? at_most(values[ITL_TARGET * all->workers], rest) : INFINITY;
}

static double least_within(const double *scores, const double *steps, int64_t count, double limit) {
    double least = INFINITY;
    for (int64_t at = 0; at < count; at++)
        if (steps[at] <= limit && scores[at] < least)
            least = scores[at];
    return least;
}

/* Return the best score of decode workers by themselves and of pairs. */
static double best_within(const Workers *all, const Rows *rows, const Query *query, const double *alone,
                          int64_t decodes, const double *pairs, int64_t listed, const Found *found,
                          int limited) {
    int64_t takers = rows->taker_count;
    const double *alone_steps = alone + STEPS * rows->decode_count, *pair_steps = pairs + listed * takers;
    double best = INFINITY;
    for (int64_t at = 0; at < decodes; at++) {
        double limit = itl_limit(all, query, rows->decodes[at], limited);
        best = at_most(least_within(alone + at, alone_steps + at, 1, limit), best);
    }
    for (int64_t at = 0; at < listed; at++) {
        double limit = itl_limit(all, query, found->rest[at], limited);
        best = at_most(least_within(pairs + at * takers, pair_steps + at * takers, takers, limit), best);
    }
    return best;
}

static uint64_t mixed(uint64_t mix) {
    mix ^= mix >> 15;
    return mix * ((uint64_t)0xC2B2AE3D << 32); /* only the low 32 bits count */
}

/* Choose the best, with a prefill worker where it makes no difference; the seed picks among equals.
 * Those that hold up streams beyond their target are left out, unless all do. */
static void pick(const Workers *all, const Rows *rows, const Query *query, const double *alone,
                 const double *pairs, Found *found) {
    int64_t decodes = query->always && found->has_pairs ? 0 : rows->decode_count;
    int64_t takers = rows->taker_count, listed = found->has_pairs ? found->prefills : 0;
    const double *alone_steps = alone + STEPS * rows->decode_count, *pair_steps = pairs + listed * takers;
    int limited = 1;
    double best = best_within(all, rows, query, alone, decodes, pairs, listed, found, limited);
    if (best == INFINITY) {
        limited = 0;
        best = best_within(all, rows, query, alone, decodes, pairs, listed, found, limited);
    }
    double limit = best + at_least(best * query->tie_share, query->tie_seconds);
    uint64_t seed = (uint64_t)query->seed & UINT32_MAX, least = UINT64_MAX;
    found->decode_at = found->prefill_at = -1;
    for (int64_t from = 0; from < listed; from++) {
        double within = itl_limit(all, query, found->rest[from], limited);
        uint64_t prefill = all->id_hashes[found->rest[from]] ^ seed;
        for (int64_t to = 0; to < takers; to++) {
            int64_t at = from * takers + to;
            if (pairs[at] > limit || pair_steps[at] > within)
                continue;
            uint64_t decode = all->id_hashes[rows->takers[to]] ^ seed;
            uint64_t mix = mixed((decode * 0x9E3779B1u) ^ (prefill * 0x85EBCA77u));
            if (found->decode_at < 0 || mix < least) {
                least = mix;
                found->prefill_at = from;
                found->decode_at = to;
            }
        }
    }
    if (found->decode_at >= 0)
        return;
    for (int64_t at = 0; at < decodes; at++) {
        if (alone[at] > limit || alone_steps[at] > itl_limit(all, query, rows->decodes[at], limited))
            continue;
        uint64_t mix = mixed((all->id_hashes[rows->decodes[at]] ^ seed) * 0x9E3779B1u);
        if (found->decode_at < 0 || mix < least) {
            least = mix;
            found->decode_at = at;
        }
    }
}

/* Score a request's placements and choose one; return 0, or -1 without memory.
 *
 * `pages`, that decoding needs, is by worker; NULL: they are the query's. `made` takes the estimates of all workers; those of the
 * prompt alone if there is output; the decode workers; what the output takes to compute, by taker; the
 * pairs; and for each store that is adapted to, which prefill workers of the shortlist are and their
 * estimates. */
int scores_choose(const Workers *all, const Rows *rows, const Query *query, const Held *held,
                  const Turn *turns, const double *pages, double *made, Found *found) {
    int64_t scratch_count = all->workers + 5 * rows->taker_count + query->max_prefills;
    double *scratch = malloc((size_t)scratch_count * sizeof(double));
    if (!scratch)
        return -1;
    double *delays = scratch, *prefill = made, *prompt = made, *alone = made + ESTIMATES * all->workers;
    estimate_all(all, query, held, turns, delays, prefill);
    if (query->output_tokens) {
        prompt = alone;
        alone += ESTIMATES * all->workers;
        estimate_prompt(all, query, delays, prefill, prompt);
    }
    double *resume = alone + OF_DECODES * rows->decode_count, *pairs = resume + rows->taker_count;
    found->resumes = score_alone(all, rows, query, pages, prefill, alone);
    found->prefills = found->adapted = 0;
    found->has_pairs = query->pairs && !found->resumes &&
                       score_pairs(all, rows, query, held, prefill, prompt, delays, alone,
                                   scratch + all->workers, resume, pairs, found);
    pick(all, rows, query, alone, pairs, found);
    free(scratch);
    return 0;
}
