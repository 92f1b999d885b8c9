// The world: starts and ends MPI, finds this rank's place, and brings ranks to one verdict.
#include "dist/world.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cores.h"
#include "core/cpu_quota.h"
#include "core/log.h"
#include "core/shape.h"
#include "dist/comms.h"
#include "dist/launcher.h"
#include "dist/mpi_batch.h"

enum { MESSAGE_BYTES = 8192 + 128, ABORT_SECONDS = 5 };
#define START_TIMEOUT_S 600.0

// What fwa_world * points to: the public part first.
typedef struct world_state {
    fwa_world world;
    bool owns_mpi;    // MPI was started here, so it ends here
    double timeout_s; // of all communicators, also those made later; 0: none
} world_state;

static world_state *state_of(fwa_world *world) {
    return (world_state *)world;
}

static fwa_status start_mpi(world_state *state, int *argc, char ***argv) {
    int initialised = 0, finalised = 0, provided = 0;
    FWA_MPI_TRY(MPI_Finalized(&finalised));
    FWA_CHECK(!finalised, FWA_COMM, "got a second world after MPI had ended, expected one world a process");
    FWA_MPI_TRY(MPI_Initialized(&initialised));
    if (initialised) {
        FWA_MPI_TRY(MPI_Query_thread(&provided));
    } else {
        FWA_MPI_TRY(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided));
        state->owns_mpi = true;
    }
    state->world.mpi = true;
    FWA_CHECK(provided >= MPI_THREAD_SERIALIZED, FWA_COMM,
              "MPI: got thread level %d, expected SERIALIZED (%d): use an MPI built with thread support", provided,
              MPI_THREAD_SERIALIZED);
    FWA_MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    FWA_MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FWA_MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &state->world.rank));
    FWA_MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &state->world.size));
    return FWA_OK;
}

// Divides the cores of this rank by the number of ranks that may run on one of them: right for ranks that are bound,
// for unbound ones, and inside containers, whose processor time all ranks of the node share.
static fwa_status share_cores(fwa_world *world, MPI_Comm node) {
    fwa_cores mine;
    fwa_cores_usable(&mine);
    fwa_cores *all = calloc((size_t)world->node_size, sizeof *all);
    FWA_CHECK(all, FWA_MEMORY, "no memory for the cores of %d ranks", world->node_size);
    fwa_status status =
        fwa_mpi_status(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, node), "MPI_Allgather");
    int ranks = 0;
    for (int r = 0; r < world->node_size; r++) ranks += fwa_cores_overlap(&mine, &all[r]);
    free(all);
    const int64_t granted = fwa_cpu_quota(NULL, NULL) / world->node_size;
    if (ranks > 0) world->cores = (int)fwa_max(1, fwa_min(fwa_cores_count(&mine) / ranks, granted));
    return status;
}

static fwa_status find_node(fwa_world *world) {
    MPI_Comm node;
    FWA_MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &node));
    FWA_MPI_TRY(MPI_Comm_rank(node, &world->node_rank));
    FWA_MPI_TRY(MPI_Comm_size(node, &world->node_size));
    fwa_status status = share_cores(world, node);
    FWA_MPI_TRY(MPI_Comm_free(&node));
    return status;
}

static fwa_status set_up(world_state *state, int *argc, char ***argv) {
    fwa_world *world = &state->world;
    fwa_launcher launcher;
    FWA_TRY(fwa_launcher_detect(&launcher));
    if (launcher.mpi) {
        FWA_TRY(start_mpi(state, argc, argv));
        FWA_CHECK(
            launcher.tasks == 0 || launcher.tasks == world->size, FWA_COMM,
            "number of ranks: got %d from MPI, expected %ld from %s: the launcher and the MPI library do not belong "
            "together (load the MPI that fwa was built with, or use its mpirun)",
            world->size, launcher.tasks, launcher.source);
        FWA_TRY(fwa_comm_mpi_create(&world->all, &(MPI_Comm){MPI_COMM_WORLD}));
        FWA_TRY(find_node(world));
    } else {
        FWA_TRY(fwa_comm_self_create(&world->all));
    }
    FWA_TRY(fwa_comm_self_create(&world->sp));
    world->all->set_timeout(world->all, state->timeout_s);
    world->dp = world->all;
    world->dp_rank = world->rank;
    world->dp_size = world->size;
    return FWA_OK;
}

fwa_status fwa_world_create(fwa_world **out, int *argc, char ***argv) {
    *out = NULL;
    world_state *state = calloc(1, sizeof *state);
    FWA_CHECK(state, FWA_MEMORY, "no memory for the world (%zu bytes)", sizeof *state);
    state->timeout_s = START_TIMEOUT_S;
    fwa_world *world = &state->world;
    world->cores = fwa_cores_granted();
    world->size = world->node_size = world->dp_size = world->sp_size = 1;
    gethostname(world->host, sizeof world->host - 1);
    fwa_status status = set_up(state, argc, argv);
    if (status != FWA_OK) {
        fwa_world_destroy(world);
        return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    }
    *out = world;
    return FWA_OK;
}

// dp and sp may be `all` itself; each communicator is destroyed once.
static void drop_groups(fwa_world *world) {
    if (world->dp && world->dp != world->all) world->dp->destroy(world->dp);
    if (world->sp && world->sp != world->all) world->sp->destroy(world->sp);
    world->dp = world->sp = NULL;
}

// The group of the ranks with this `color`, of `size` ranks.
static fwa_status make_group(fwa_world *world, int color, int size, fwa_comm **out) {
    if (size == world->size) {
        *out = world->all;
        return FWA_OK;
    }
    if (size == 1) return fwa_comm_self_create(out);
    MPI_Comm part;
    FWA_MPI_TRY(MPI_Comm_split(MPI_COMM_WORLD, color, world->rank, &part));
    FWA_TRY(fwa_comm_mpi_create(out, &part));
    FWA_MPI_TRY(MPI_Comm_free(&part));
    (*out)->set_timeout(*out, state_of(world)->timeout_s);
    return FWA_OK;
}

fwa_status fwa_world_split(fwa_world *world, int sp) {
    FWA_CHECK(sp >= 1 && world->size % sp == 0, FWA_CONFIG,
              "parallel.sp: got %d with %d rank%s, expected a divisor of the number of ranks", sp, world->size,
              fwa_plural(world->size));
    FWA_TRY(world->all->barrier(world->all));
    drop_groups(world);
    world->sp_size = sp;
    world->sp_rank = world->rank % sp;
    world->dp_size = world->size / sp;
    world->dp_rank = world->rank / sp;
    FWA_TRY(make_group(world, world->dp_rank, world->sp_size, &world->sp));
    FWA_TRY(make_group(world, world->sp_rank, world->dp_size, &world->dp));
    return FWA_OK;
}

// MPI_Finalize waits for every rank without a limit, so all must have come here first.
static bool may_finalise(fwa_world *world) {
    if (!state_of(world)->owns_mpi) return false;
    if (world->size == 1) return true;
    return world->all && world->all->barrier(world->all) == FWA_OK;
}

void fwa_world_destroy(fwa_world *world) {
    if (!world) return;
    bool finalise = may_finalise(world);
    if (state_of(world)->owns_mpi && !finalise) {
        fwa_log_warn("leaving without MPI_Finalize: %s",
                     world->all ? "the other ranks do not answer" : "the ranks were not brought together");
    }
    drop_groups(world);
    if (world->all) world->all->destroy(world->all);
    if (finalise) MPI_Finalize();
    free(world);
}

static volatile sig_atomic_t abort_code;

static void leave_now(int signal_number) {
    (void)signal_number;
    _exit(abort_code);
}

void fwa_world_abort(fwa_world *world, int code) {
    // Neither a blocked stream nor an mpirun that is gone may keep this process.
    abort_code = code;
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = leave_now}, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(ABORT_SECONDS);
    fflush(NULL);
    if (world && world->mpi) MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

// Pre-emption yields to every error; between errors the higher code is the worse.
static int severity(int64_t status) {
    return status == FWA_PREEMPTED ? 1 : status == FWA_OK ? 0 : (int)status + 1;
}

// Lowest rank among those with the worst status.
static int worst_rank(const int64_t *codes, int size) {
    int worst = 0;
    for (int r = 1; r < size; r++) {
        if (severity(codes[r]) > severity(codes[worst])) worst = r;
    }
    return worst;
}

static fwa_status exchange_verdicts(fwa_world *world, fwa_status mine, fwa_status *verdict) {
    int64_t my_code = mine;
    int64_t *codes = calloc((size_t)world->size, sizeof *codes);
    FWA_CHECK(codes, FWA_MEMORY, "no memory for %d verdicts", world->size);
    fwa_status status = world->all->all_gather(world->all, NULL, &my_code, codes, 1, FWA_I64);
    int root = worst_rank(codes, world->size);
    *verdict = (fwa_status)codes[root];
    free(codes);
    FWA_TRY(status);
    if (*verdict == FWA_OK) return FWA_OK;
    char text[MESSAGE_BYTES] = "";
    if (root == world->rank) {
        snprintf(text, sizeof text, "rank %d (host %s): %s", root, world->host, fwa_error_message());
    }
    FWA_TRY(world->all->broadcast(world->all, NULL, text, MESSAGE_BYTES, FWA_U8, root));
    if (mine == FWA_OK) {
        fwa_error_raise(*verdict, __FILE__, __LINE__, __func__, "%s", text);
        fwa_error_mark_remote();
        return *verdict;
    }
    return FWA_OK;
}

fwa_status fwa_world_agree(fwa_world *world, fwa_status mine) {
    if (world->size == 1) return mine;
    char own[MESSAGE_BYTES];
    snprintf(own, sizeof own, "%s", mine == FWA_OK ? "" : fwa_error_message());
    fwa_status verdict = FWA_OK;
    fwa_status status = exchange_verdicts(world, mine, &verdict);
    if (status == FWA_OK) return verdict;
    if (mine == FWA_OK) return fwa_error_pass(status, __FILE__, __LINE__, __func__);
    // The others could not be told: the own failure stays the news.
    FWA_FAIL(mine, "%s (the other ranks were not told: %s)", own, fwa_status_name(status));
}

fwa_status fwa_world_agree_late(fwa_world *world, fwa_status mine) {
    if (world->size == 1) return mine;
    double limit = state_of(world)->timeout_s;
    fwa_world_set_timeout(world, 0.0);
    fwa_status status = fwa_world_agree(world, mine);
    fwa_world_set_timeout(world, limit);
    return status;
}

void fwa_world_set_timeout(fwa_world *world, double seconds) {
    state_of(world)->timeout_s = seconds > 0 ? seconds : 0;
    world->all->set_timeout(world->all, seconds);
    if (world->dp && world->dp != world->all) world->dp->set_timeout(world->dp, seconds);
    if (world->sp && world->sp != world->all) world->sp->set_timeout(world->sp, seconds);
}

fwa_status fwa_world_share_text(fwa_world *world, const char *mine, char **text) {
    fwa_comm *all = world->all;
    int64_t bytes = world->rank == 0 ? (int64_t)strlen(mine) + 1 : 0;
    fwa_status status = FWA_OK;
    *text = NULL;
    FWA_TRY(all->broadcast(all, NULL, &bytes, 1, FWA_I64, 0));
    char *copy = malloc((size_t)bytes);
    if (!copy)
        status = fwa_error_raise(FWA_MEMORY, __FILE__, __LINE__, __func__, "no memory for a text of %lld bytes",
                                 (long long)bytes);
    else if (world->rank == 0)
        memcpy(copy, mine, (size_t)bytes);
    status = fwa_world_agree(world, status);
    if (status == FWA_OK) status = all->broadcast(all, NULL, copy, bytes, FWA_U8, 0);
    if (status == FWA_OK) {
        *text = copy;
        return FWA_OK;
    }
    free(copy);
    return fwa_error_pass(status, __FILE__, __LINE__, __func__);
}
