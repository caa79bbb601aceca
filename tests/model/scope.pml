/* A workspace with two runs and the stop of it: the gate shuts in one transaction, the runs are reached one by one
 * by any number of processes that may die in between, runs are admitted and dispatch meanwhile, people release and
 * resume. Each proctype names the verb that it mirrors. MUTANT as in gate.pml.
 */
mtype = { OPEN, SHUT, ABSENT, ACTIVE, PAUSED, NONE, GIVEN, NOT_SENT, LOST };

/* Mutants: one guard is gone, or two that mask each other. */
#define ONE_STATEMENT  1   /* gate and runs in one statement: its snapshot is older than its locks */
#define PLAIN_ADMIT    2   /* admission reads the gate without the workspace's lock */
#define PASSED_OVER    3   /* a run that somebody holds counts as reached */
#define LIST_FIRST     4   /* the list of a run is read before its lock */
#define NO_SCOPE       5   /* dispatch asks the run alone */
#define NO_LOOK        6   /* no second look */
#define LOOK_AT_RUN    7   /* the second look asks the run alone */
#define NO_EPOCH       8   /* dispatch does not compare epochs: NOT_FENCED makes up for it */
#define NOT_FENCED     9   /* a gate is released before all its runs were reached: NO_EPOCH makes up for it */
#define NO_EPOCH_FENCED 10 /* both */
#define NO_FANOUT     11   /* the gate alone, then open again */

/* Situations that the search must come to. */
#define SITUATION(n, what) if :: mutant == n && (what) -> assert(false) :: else fi
#define ADMISSION_REFUSED 51
#define REACHED_LATE      52   /* a permit from after the gate shut, whose check had begun before, is listed */
#define LOOKED_SHUT       53   /* its holder looked once more and sent nothing */
#define TOOK_OVER         54   /* the request died, and the sweep reached the rest */
#define GOES_ON           55   /* a run dispatches after release and resume */
#define ADMITTED_AGAIN    56   /* a run is admitted after the release */

c_code { \#include <stdlib.h> };
byte mutant = 0;

mtype gate = OPEN;  byte epoch = 1;  byte wlock = 255;
mtype status[2] = ABSENT;  byte version[2] = 1;  byte admitted[2];  byte rlock[2] = 255;
mtype permit[2] = NONE;  byte seen[2];
bool part[2];  bool listed[2];  byte ended[2];
bool stopped = false, fenced = false, released = false;
bool died = false;

#define LOCK(row, me) atomic { row == 255 -> row = me }
#define UNLOCK(row)   row = 255
#define LEFT(i)       (status[i] == ACTIVE && admitted[i] < epoch && !part[i])
#define OLD(i)        (status[i] == ACTIVE && admitted[i] < epoch)

/* admission.admit: the workspace's lock, then the gate, then one INSERT. */
proctype Admit(byte i) {
  bool shut;
  if :: mutant == PLAIN_ADMIT -> skip :: else -> LOCK(wlock, i) fi;
  shut = (gate != OPEN);
  if :: shut -> SITUATION(ADMISSION_REFUSED, true)
     :: else -> atomic {
          assert(gate == OPEN);                                     /* I19: none is born under a shut gate */
          SITUATION(ADMITTED_AGAIN, released);
          status[i] = ACTIVE; admitted[i] = epoch }
  fi;
  atomic { if :: wlock == i -> UNLOCK(wlock) :: else fi; shut = false }
}

/* gate.dispatch → gate.look → the send. It locks no scope: the gate may shut between its check and its COMMIT. */
proctype Worker(byte i) {
  byte carried; bool go, shut, old;
  status[i] == ACTIVE -> carried = version[i];
  LOCK(rlock[i], 10 + i);
  atomic {
    shut = (gate != OPEN); old = (admitted[i] != epoch);            /* one statement, after the lock */
    go = status[i] == ACTIVE && version[i] == carried && permit[i] == NONE &&
         (mutant == NO_SCOPE || (!shut && (!old || mutant == NO_EPOCH || mutant == NO_EPOCH_FENCED)))
  };
  if :: !go -> UNLOCK(rlock[i]); goto done :: else fi;
  if :: UNLOCK(rlock[i]); goto done :: skip fi;                     /* dies before COMMIT */
  atomic {
    assert(status[i] == ACTIVE && version[i] == carried);           /* I1: the run's row */
    assert(!shut && !old);                                          /* I1: every scope above, when the check began */
    SITUATION(GOES_ON, released && carried > 1);
    permit[i] = GIVEN; seen[i] = carried; UNLOCK(rlock[i])
  };
  if :: goto done :: skip fi;                                       /* dies with its permit */
  atomic {
    shut = !(status[i] == ACTIVE && version[i] == carried && gate == OPEN && admitted[i] == epoch);
    go = !shut || mutant == NO_LOOK ||
         (mutant == LOOK_AT_RUN && status[i] == ACTIVE && version[i] == carried);
    if :: !go -> permit[i] = NOT_SENT; SITUATION(LOOKED_SHUT, stopped) :: else fi
  };
  if :: !go -> goto done :: else fi;
  atomic {
    assert(!shut);                                                  /* I7 */
    assert(!(part[i] && seen[i] <= ended[i] && !listed[i]))         /* I2 */
  };
done:
  atomic { go = false; shut = false; old = false; carried = 0 }
}

/* fences.stop_runs, of one run under its lock: bump, then list in a younger statement. */
inline reach(i, early) {
  SITUATION(REACHED_LATE, permit[i] == GIVEN && admitted[i] < epoch);
  SITUATION(TOOK_OVER, died);
  listed[i] = (mutant == LIST_FIRST -> early : permit[i] == GIVEN);
  assert(listed[i] || permit[i] != GIVEN);                          /* I2 */
  ended[i] = version[i]; version[i]++; status[i] = PAUSED; part[i] = true;
  if :: permit[i] == GIVEN -> permit[i] = LOST :: else fi           /* its lease, sooner or later */
}

/* scopes.request_scope_stop, then fanout.fence in its request; the process may die at any point. */
proctype Stop() {
  bool was[2];
  if :: mutant == ONE_STATEMENT -> atomic { was[0] = (status[0] == ACTIVE); was[1] = (status[1] == ACTIVE) }
     :: else fi;
  LOCK(wlock, 20);
  atomic {
    gate = SHUT; epoch++; stopped = true;
    if :: mutant == ONE_STATEMENT ->
         if :: was[0] -> reach(0, false) :: else fi;
         if :: was[1] -> reach(1, false) :: else fi;
         fenced = true; assert(!OLD(0) && !OLD(1))                  /* I19 */
       :: mutant == NO_FANOUT -> fenced = true; assert(!OLD(0) && !OLD(1))
       :: else fi;
    UNLOCK(wlock)
  };
  if :: run Fanout(30, true) :: died = true fi
}

/* fanout.fence: `mortal` in a request, the sweep comes again. Rows are locked one at a time, without waiting. */
proctype Fanout(byte me; bool mortal) {
  byte i = 0; bool early, passed[2];
  do
  :: stopped && !fenced && !released && LEFT(0) && !passed[0] -> i = 0;
     early = (permit[i] == GIVEN);
     atomic { if :: rlock[0] == 255 -> rlock[0] = me :: else -> passed[0] = (mutant == PASSED_OVER); goto next fi };
     atomic { if :: LEFT(0) && !released -> reach(0, early) :: else fi; UNLOCK(rlock[0]); early = false };
next: if :: mortal -> died = true; break :: skip fi
  :: stopped && !fenced && !released && LEFT(1) && !passed[1] -> i = 1;
     early = (permit[i] == GIVEN);
     atomic { if :: rlock[1] == 255 -> rlock[1] = me :: else -> passed[1] = (mutant == PASSED_OVER); goto next2 fi };
     atomic { if :: LEFT(1) && !released -> reach(1, early) :: else fi; UNLOCK(rlock[1]); early = false };
next2: if :: mortal -> died = true; break :: skip fi
  :: stopped && !fenced && !released && (!LEFT(0) || passed[0]) && (!LEFT(1) || passed[1]) ->
     LOCK(wlock, me);                                               /* fanout._fenced */
     atomic {
       if :: !released && ((!LEFT(0) || passed[0]) && (!LEFT(1) || passed[1])) ->
            fenced = true; assert(!OLD(0) && !OLD(1))               /* I19 */
          :: else fi;
       UNLOCK(wlock) }
  :: fenced || released -> break
  od;
  i = 0
}

/* tasks.sweep, by fanout.carry_on: it comes for as long as there is something to reach. */
proctype Sweep() { stopped -> run Fanout(40, false) }

/* releases.release: refused before the stop is fenced; the epoch stays. */
proctype Release() {
  stopped && (fenced || mutant == NOT_FENCED || mutant == NO_EPOCH_FENCED);
  LOCK(wlock, 50);
  atomic { gate = OPEN; released = true; UNLOCK(wlock) }
}

/* resume.resume: under the workspace's lock, then the run's; at a new version and the current epoch. */
proctype Resume(byte i) {
  status[i] == PAUSED && released ->
  LOCK(wlock, 60 + i); LOCK(rlock[i], 60 + i);
  atomic {
    if :: gate == OPEN && status[i] == PAUSED && permit[i] != GIVEN && permit[i] != LOST ->
         version[i]++; status[i] = ACTIVE; admitted[i] = epoch; permit[i] = NONE; run Worker(i)
       :: else fi;
    UNLOCK(rlock[i]); UNLOCK(wlock) }
}

init {
  c_code { now.mutant = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0; };
  atomic {
    run Admit(0); run Admit(1); run Worker(0); run Stop(); run Sweep(); run Release();
#ifdef TWO
    run Worker(1);
#endif
    run Resume(0) }
}

/* I19, for as long as the stop stands: not only at the moment of the fence. */
ltl none_left { [] (!(fenced && !released) || (!OLD(0) && !OLD(1))) }
