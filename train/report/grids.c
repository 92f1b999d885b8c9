// The figure of exact match over pairs of widths.
#include <stdlib.h>

#include "train/report/heat.h"
#include "train/report/panels.h"

// The widths of a group: those of its first run that has been measured; NULL: none has.
static const fwa_addition_grid *grid_of(const fwa_report *report, const fwa_report_group *group) {
    for (int i = 0; i < group->count; i++)
        if (report->run[group->first + i].grid) return report->run[group->first + i].grid;
    return NULL;
}

static void mark_trained(fwa_heat_map *map, const fwa_addition_grid *grid) {
    for (int i = grid->count - 1; i >= 0; i--) {
        if (!fwa_addition_grid_trained(grid, i)) continue;
        map->marked_from = i;
        map->marked++;
    }
}

// Means over the runs of a group. The caller frees map->share.
static fwa_status make_map(const fwa_report *report, const fwa_report_group *group, fwa_heat_map *map) {
    const fwa_addition_grid *grid = grid_of(report, group);
    const int pairs = grid->count * grid->count;
    int runs = 0;
    *map = (fwa_heat_map){.name = report->groups > 1 ? group->label : NULL, .count = grid->count, .width = grid->width};
    map->share = calloc((size_t)pairs, sizeof *map->share);
    FWA_CHECK(map->share, FWA_MEMORY, "no memory for a figure of %d pairs of widths", pairs);
    for (int r = 0; r < group->count; r++) {
        const fwa_addition_grid *other = report->run[group->first + r].grid;
        if (!other || !fwa_addition_grid_same_widths(grid, other)) continue;
        for (int i = 0; i < pairs; i++) map->share[i] += (double)other->cell[i].right / (double)other->examples;
        runs++;
    }
    for (int i = 0; i < pairs; i++) map->share[i] /= runs;
    mark_trained(map, grid);
    return FWA_OK;
}

fwa_status fwa_report_grids(const fwa_report *report, bool alone, FILE *out) {
    fwa_heat_map *maps = calloc((size_t)report->groups, sizeof *maps);
    fwa_heat heat = {.title = "Exact match, per cent, by the digits of both operands",
                     .note = "Rows: the first operand; columns: the second. Frame: trained widths.",
                     .alone = alone,
                     .map = maps};
    fwa_status status = FWA_OK;
    FWA_CHECK(maps, FWA_MEMORY, "no memory for a figure of %d runs", report->runs);
    for (int g = 0; g < report->groups && status == FWA_OK; g++)
        if (grid_of(report, &report->group[g])) status = make_map(report, &report->group[g], &maps[heat.maps++]);
    if (status == FWA_OK) fwa_heat_draw(&heat, out);
    for (int i = 0; i < heat.maps; i++) free(maps[i].share);
    free(maps);
    return status;
}
