/* Blocks' keys to the numbers of their sets of holders: open addressing with linear probing.
 *
 * An entry is 8 bytes mixed from a key's 16, which are of a digest, and a number of 4 bytes; 0 is the
 * empty set, and an empty slot. Two keys with an equal mix are one: once in 10^13 look-ups among a
 * million blocks, and what the index says is a prediction. Slots are a power of two and as many more
 * as a probe may go beyond the last, so that none wraps around: removing moves entries towards slot 0
 * only, and a sweep that goes down to slot 0 misses none. One thread at a time.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 16
#define SPARE 128
#define AHEAD 8
#define FIRST_BITS 10
#define UNKNOWN UINT32_MAX

typedef struct __attribute__((packed)) {
    uint64_t key;
    uint32_t set;
} Entry;

typedef struct {
    Entry *entries; /* (1 << bits) + SPARE + 1, the last always empty */
    unsigned bits;
    uint64_t count;
    uint64_t unswept; /* slots below this one are still to be swept */
} Table;

static uint64_t slots_of(unsigned bits) { return ((uint64_t)1 << bits) + SPARE; }

static uint64_t home_of(uint64_t key, unsigned bits) {
    return (key * 0x9E3779B97F4A7C15u) >> (64 - bits);
}

static uint64_t key_at(const uint8_t *keys, uint64_t index) {
    uint64_t halves[2];
    memcpy(halves, keys + index * KEY_BYTES, sizeof halves);
    return halves[0] ^ (halves[1] * 0xC2B2AE3D27D4EB4Fu);
}

/* Return the slot of a key, or the empty one where it would be, which may be the last. */
static uint64_t find(const Table *table, uint64_t key) {
    uint64_t slot = home_of(key, table->bits);
    while (table->entries[slot].set && table->entries[slot].key != key)
        slot++;
    return slot;
}

/* Double the table, more than once where some probe gets too long; return 0, or -1 without memory. */
static int grow(Table *table) {
    Table made = {.bits = table->bits};
    for (;;) {
        made.bits++;
        made.count = 0;
        uint64_t slots = slots_of(made.bits), filled = slots_of(table->bits), slot;
        if (made.bits >= 48 || !(made.entries = calloc(slots + 1, sizeof(Entry))))
            return -1;
        for (slot = 0; slot < filled; slot++) {
            const Entry *entry = &table->entries[slot];
            if (!entry->set)
                continue;
            uint64_t at = find(&made, entry->key);
            if (at == slots)
                break;
            made.entries[at] = *entry;
            made.count++;
        }
        if (slot == filled)
            break;
        free(made.entries);
    }
    free(table->entries);
    /* Entries lie elsewhere now: a sweep begins anew. */
    made.unswept = table->unswept ? slots_of(made.bits) : 0;
    *table = made;
    return 0;
}

static void erase(Table *table, uint64_t hole) {
    for (uint64_t slot = hole + 1; table->entries[slot].set; slot++)
        if (home_of(table->entries[slot].key, table->bits) <= hole) {
            table->entries[hole] = table->entries[slot];
            hole = slot;
        }
    table->entries[hole].set = 0;
    table->count--;
}

Table *table_new(void) {
    Table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->bits = FIRST_BITS;
    table->entries = calloc(slots_of(FIRST_BITS) + 1, sizeof(Entry));
    if (!table->entries) {
        free(table);
        return NULL;
    }
    return table;
}

void table_free(Table *table) {
    free(table->entries);
    free(table);
}

uint64_t table_count(const Table *table) { return table->count; }

static void prefetch(const Table *table, const uint8_t *keys, uint64_t index, uint64_t count) {
    if (index < count)
        __builtin_prefetch(&table->entries[home_of(key_at(keys, index), table->bits)]);
}

/* Fold the leading known keys into runs of equal numbers: (number, keys) each; return how many runs.
 *
 * With `gaps`, fold all keys: unknown ones have number 0. */
uint64_t table_match(const Table *table, const uint8_t *keys, uint64_t count, int gaps,
                     uint32_t *runs) {
    uint64_t made = 0;
    uint32_t previous = 0;
    for (uint64_t index = 0; index < AHEAD; index++)
        prefetch(table, keys, index, count);
    for (uint64_t index = 0; index < count; index++) {
        prefetch(table, keys, index + AHEAD, count);
        uint32_t set = table->entries[find(table, key_at(keys, index))].set;
        if (!set && !gaps)
            break;
        if (made && set == previous) {
            runs[2 * made - 1]++;
        } else {
            runs[2 * made] = previous = set;
            runs[2 * made + 1] = 1;
            made++;
        }
    }
    return made;
}

/* Put after[number] in the place of each key's number from `index` on; 0 where it has none.
 *
 * Return `count` when done; the index of a key whose number, in *asked, `after` does not know: call
 * again from there once it does; or -1 without memory. */
int64_t table_replace(Table *table, const uint8_t *keys, uint64_t index, uint64_t count,
                      const uint32_t *after, uint64_t known, uint32_t *asked) {
    for (uint64_t first = index; first < index + AHEAD; first++)
        prefetch(table, keys, first, count);
    for (; index < count; index++) {
        prefetch(table, keys, index + AHEAD, count);
        uint64_t key = key_at(keys, index), slot = find(table, key);
        uint32_t before = table->entries[slot].set;
        if (before >= known || after[before] == UNKNOWN) {
            *asked = before;
            return (int64_t)index;
        }
        uint32_t set = after[before];
        if (before && set) {
            table->entries[slot].set = set;
        } else if (before) {
            erase(table, slot);
        } else if (set) {
            while (slot == slots_of(table->bits) ||
                   (table->count + 1) * 3 > ((uint64_t)2 << table->bits)) {
                if (grow(table))
                    return -1;
                slot = find(table, key);
            }
            table->entries[slot] = (Entry){key, set};
            table->count++;
        }
    }
    return (int64_t)count;
}

void table_begin_sweep(Table *table) { table->unswept = slots_of(table->bits); }

/* Replace the numbers of at most `limit` entries as table_replace does.
 *
 * Return 0 when all were swept, 1 when some are left, and 2 for a number, in *asked, that `after`
 * does not know. */
int table_sweep(Table *table, uint64_t limit, const uint32_t *after, uint64_t known,
                uint32_t *asked) {
    for (; table->unswept; table->unswept--) {
        uint64_t slot = table->unswept - 1;
        uint32_t before = table->entries[slot].set;
        if (!before)
            continue;
        if (!limit--)
            return 1;
        if (before >= known || after[before] == UNKNOWN) {
            *asked = before;
            return 2;
        }
        if (after[before])
            table->entries[slot].set = after[before];
        else
            erase(table, slot); /* what moved here was swept before */
    }
    return 0;
}

/* Set used[number] to 1 for each number that some key has. */
void table_used(const Table *table, uint8_t *used) {
    for (uint64_t slot = 0; slot < slots_of(table->bits); slot++)
        used[table->entries[slot].set] = 1;
}
