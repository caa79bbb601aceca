/* One run, N workers with one effect each, one stop: gate, permit, second look, list, drain, look-up, crash, late
 * send, resume. Each proctype names the verb that it mirrors; what is atomic here is one COMMIT or one statement
 * there, and a worker may halt for as long as it likes between any two lines, or die.
 *
 * N is 1 unless told otherwise (spin -DN=2): two workers meet at the list and at quiet, without clock and resume,
 * which one worker shows as well in a space small enough to search.
 *
 * The environment variable MUTANT takes one guard away, or two (`pair`); 0 is the protocol as it is. It is read
 * once, so that one compilation answers for all. tests/model/spin.py runs them.
 */
#ifndef N
#define N 1
#endif

mtype = { ACTIVE, PAUSING, PAUSED, CANCELLING, CANCELLED, UNKNOWN,              /* run */
          NONE, OPEN, REPORTED, NOT_SENT, LOST,                                /* permit */
          DECLARED, DISPATCHED, CONFIRMED, NOT_APPLIED, IN_DOUBT, NOT_STARTED }; /* effect; IN_DOUBT is UNKNOWN */

/* Mutants: one guard is gone, or two that mask each other. */
#define NO_LOCK        1   /* dispatch asks with a plain EXISTS instead of locking the run's row */
#define NO_VERSION     2   /* any version will do */
#define NO_STATUS      3   /* only the version is compared */
#define NO_LOOK        4   /* the worker sends what it has a permit for */
#define NO_EXPIRY      5   /* the second look forgets that a permit ends */
#define NO_LOCK_LOOK   6   /* NO_LOCK and NO_LOOK */
#define LIST_FIRST     7   /* the stop lists before it has the run's lock */
#define ABSENT         8   /* "absent" is taken for proof, whoever may still send */
#define NO_WINDOW      9   /* "absent" counts inside the settle window */
#define LOST_IS_NOT   10   /* a lost lease is taken for "never sent" */
#define LOST_IS_DONE  11   /* a lost lease is taken for "applied" */
#define CLOSE_OPEN    12   /* the deadline closes the run, quiet or not */
#define CLOSE_DOUBT   13   /* quiet is enough to be CANCELLED */
#define NO_BUMP       14   /* a resume takes the old version again */
#define EARLY_RESUME  15   /* a resume in doubt, and the same key is sent once more */

/* Situations: the search must come to each of them, or its silence says nothing. */
#define SITUATION(n, what) if :: mutant == n && (what) -> assert(false) :: else fi
#define REFUSED       51   /* a dispatch after the stop found zero rows */
#define LATE_SEND     52   /* sent before the stop, applied after it, and listed */
#define LATE_LOST     53   /* applied after its lease was lost */
#define LATE_BARRED   54   /* sent after its key was barred, and not applied */
#define LOOKED_SHUT   55   /* a permit from before the stop ended NOT_SENT */
#define SETTLED_LATER 56   /* UNKNOWN became CANCELLED by evidence */
#define CAME_BACK     57   /* dispatched after a resume */

c_code { \#include <stdlib.h> };
byte mutant = 0;

mtype status = ACTIVE;  byte version = 1;
byte lock = 255;                            /* who holds the run's row FOR NO KEY UPDATE */
mtype permit[N] = NONE;  byte seen[N];      /* the permit's seen_version */
mtype effect[N] = DECLARED;
bool listed[N];                             /* InFlight: the frozen list of the stop */
bool fenced = false;  byte ended = 0;       /* the stop is acknowledged; the version that it ended */
bool over[N];                               /* the permit had ended before the stop */
bool closed = false;
/* the world, which no row knows */
bool sent[N];  bool applied[N];  bool wire[N];  bool barred[N];
bool gone[N];                               /* its worker will do nothing more */
bool expired[N];                            /* permit_until, by the database's clock */
bool told_not[N];                           /* somebody was told that it did not happen */
byte times[N];                              /* how often it was applied under its key */

#define LOCK(me)    atomic { lock == 255 -> lock = me }
#define UNLOCK      lock = 255
#define GOES_ON(v)  ((status == ACTIVE || mutant == NO_STATUS) && (version == v || mutant == NO_VERSION))
#define UNLISTED(i) (fenced && seen[i] <= ended && !listed[i] && !over[i])

inline tell_not(i) { told_not[i] = true; assert(!applied[i]) /* I10 */ }

/* gate.dispatch → gate.look → the send → settle.report. It carries the version that it was admitted with. */
proctype Worker(byte i; byte carried) {
  bool go, shut;
  if :: carried = version :: skip fi;                               /* drain.heartbeat told it, or not */
  if :: mutant == NO_LOCK || mutant == NO_LOCK_LOOK -> skip :: else -> LOCK(i) fi;
  go = (GOES_ON(carried) && permit[i] == NONE && effect[i] == DECLARED);
  if :: !go -> SITUATION(REFUSED, fenced);
          if :: lock == i -> UNLOCK :: else fi; goto done           /* zero rows: a Refusal */
     :: else fi;
  if :: if :: lock == i -> UNLOCK :: else fi; goto done             /* dies before COMMIT: nothing happened */
     :: skip fi;
  atomic {                                                          /* COMMIT */
    assert((status == ACTIVE && version == carried) || mutant == NO_LOCK_LOOK);   /* I1 */
    SITUATION(CAME_BACK, fenced && status == ACTIVE);
    permit[i] = OPEN; seen[i] = carried; effect[i] = DISPATCHED;
    if :: lock == i -> UNLOCK :: else fi
  };
  if :: goto done :: skip fi;                                       /* dies with its permit */
look:
  atomic {
    shut = !(status == ACTIVE && version == carried) || expired[i] || permit[i] != OPEN;
    go = !shut;
    if :: mutant == NO_LOOK || mutant == NO_LOCK_LOOK -> go = true
       :: mutant == NO_EXPIRY -> go = (status == ACTIVE && version == carried)
       :: else fi
  };
  if :: !go -> SITUATION(LOOKED_SHUT, listed[i] && !expired[i]); goto unsent :: else fi;
  /* SIGSTOP, a collector of garbage, a slow wire: any time may pass here */
  if :: goto done :: skip fi;
  atomic {
    assert(!shut || mutant == NO_LOCK_LOOK);                        /* I7 */
    assert(!UNLISTED(i));                                           /* I2 */
    sent[i] = true; wire[i] = true
  };
  if :: goto done                                                   /* dies before it can report */
     :: atomic { !wire[i] && applied[i] -> LOCK(i) };
        atomic { permit[i] = REPORTED;
          if :: effect[i] == DISPATCHED || effect[i] == IN_DOUBT -> effect[i] = CONFIRMED :: else fi; UNLOCK }
     :: LOCK(i);                                                    /* its call timed out: "unknown" */
        atomic { permit[i] = REPORTED;
          if :: effect[i] == DISPATCHED -> effect[i] = IN_DOUBT :: else fi; UNLOCK }
  fi;
  goto done;
unsent:                                                             /* NOT_SENT, by its own token */
  LOCK(i);
  atomic { permit[i] = NOT_SENT; tell_not(i);
    if :: effect[i] == DISPATCHED -> effect[i] = DECLARED
       :: effect[i] == IN_DOUBT -> effect[i] = NOT_APPLIED
       :: else fi; UNLOCK };
done:
  atomic { gone[i] = true; go = false; shut = false }
}

/* The provider: what is on the wire arrives or is dropped, at any time. It refuses a key that it has barred. */
inline arrive(i) {
  SITUATION(LATE_BARRED, barred[i] && permit[i] == LOST);
  if :: true                                                        /* it never comes */
     :: !barred[i] ->
       applied[i] = true; times[i]++;
       SITUATION(LATE_SEND, fenced && listed[i]); SITUATION(LATE_LOST, permit[i] == LOST);
       assert(!told_not[i]);                                        /* I10: told "not sent", and there it is */
       assert(!closed);                                             /* I2, I12: after "closed" nothing happens */
       assert(times[i] < 2)                                         /* I6 */
  fi;
  wire[i] = false
}

proctype Provider() {
end:
  do :: atomic { wire[0] -> arrive(0) }
#if N > 1
     :: atomic { wire[1] -> arrive(1) }
#endif
  od
}

/* The database's clock. */
proctype Clock() {
end:
  do :: atomic { permit[0] == OPEN && !expired[0] -> expired[0] = true } od
}

/* stops.request_stop: one transaction; its COMMIT is the acknowledgement, and the list is complete with it. */
proctype Stop() {
  byte k; bool early[N];
  if :: mutant == LIST_FIRST -> atomic { for (k : 0 .. N - 1) { early[k] = (permit[k] == OPEN || permit[k] == LOST) } }
     :: else fi;
  LOCK(100);
  atomic {
    for (k : 0 .. N - 1) {
      listed[k] = (mutant == LIST_FIRST -> early[k] : permit[k] == OPEN || permit[k] == LOST);
      over[k] = (permit[k] == REPORTED || permit[k] == NOT_SENT);
      assert(listed[k] || over[k] || permit[k] == NONE)             /* I2 */
    };
    ended = version; version++; fenced = true;
    if :: status = CANCELLING :: status = PAUSING fi;
    UNLOCK
  }
}

#define SETTLED(i)  (effect[i] == CONFIRMED || effect[i] == NOT_APPLIED || effect[i] == NOT_STARTED)
#define ARRIVED(i)  (!wire[i] || barred[i])
#if N > 1
#define QUIET       (permit[0] != OPEN && permit[1] != OPEN)
#define ALL_SETTLED (SETTLED(0) && SETTLED(1))
#define ALL_ARRIVED (ARRIVED(0) && ARRIVED(1))
#define DOUBT       (effect[0] == IN_DOUBT || effect[1] == IN_DOUBT)
#else
#define QUIET       (permit[0] != OPEN)
#define ALL_SETTLED SETTLED(0)
#define ALL_ARRIVED ARRIVED(0)
#define DOUBT       (effect[0] == IN_DOUBT)
#endif

/* drain.drain_run and close.advance: any process may do it at any time; one that dies resumes from the rows. */
proctype Drain() {
  byte k;
end:
  do
  :: LOCK(101);                                                     /* a lease ran out: LOST, and UNKNOWN */
     atomic {
       if :: k = 0 :: N > 1 -> k = N - 1 fi;
       if :: permit[k] == OPEN ->
            permit[k] = LOST;
            if :: effect[k] == DISPATCHED ->
                 if :: mutant == LOST_IS_NOT -> effect[k] = NOT_APPLIED; tell_not(k)
                    :: mutant == LOST_IS_DONE -> effect[k] = CONFIRMED
                    :: else -> effect[k] = IN_DOUBT fi
               :: else fi
          :: else fi;
       k = 0; UNLOCK }
  :: LOCK(101);
     atomic {                                                       /* quiet? the deadline never answers that */
       if :: status == CANCELLING && (QUIET || mutant == CLOSE_OPEN) ->
            for (k : 0 .. N - 1) {
              if :: effect[k] == DECLARED -> effect[k] = NOT_STARTED; tell_not(k) :: else fi };
            if :: ALL_SETTLED || mutant == CLOSE_DOUBT || mutant == CLOSE_OPEN ->
                 status = CANCELLED; closed = true;
                 assert(QUIET && ALL_SETTLED && ALL_ARRIVED)        /* I12 */
               :: else -> status = UNKNOWN; assert(QUIET) fi           /* I12: it rests, and says what it awaits */
          :: status == PAUSING && QUIET -> status = PAUSED
          :: status == UNKNOWN && ALL_SETTLED ->
               status = CANCELLED; closed = true; assert(QUIET && ALL_ARRIVED);
               SITUATION(SETTLED_LATER, true)
          :: else fi;
       k = 0; UNLOCK }
  od
}

/* reconcile.apply_answer: presence proves; absence only where the key is barred with the answer, or where its
 * holder said that its call is over and the settle window has passed (what was on the wire has arrived by then).
 */
proctype LookUp(byte i) {
  bool found, ended_call, waited, bars;
  if :: bars = true :: N == 1 || i == 0 -> bars = false fi;         /* whether its provider bars a key that it lacks */
end:
  do
  :: effect[i] == IN_DOUBT ->
     atomic { found = applied[i]; ended_call = (permit[i] == REPORTED || permit[i] == NOT_SENT);
       waited = !wire[i] || !ended_call;                            /* the window binds the wire, not a holder */
       if :: bars && !found -> barred[i] = true :: else fi };
     LOCK(102 + i);
     atomic {
       if :: effect[i] == IN_DOUBT && found -> effect[i] = CONFIRMED
          :: effect[i] == IN_DOUBT && !found &&
             (bars || (ended_call && (waited || mutant == NO_WINDOW)) || (mutant == ABSENT && waited)) ->
               effect[i] = NOT_APPLIED; tell_not(i)
          :: else fi;
       found = false; ended_call = false; waited = false; UNLOCK }
  od
}

/* resume.resume: a decision; a new version, and not while anything is in doubt. Then a worker comes back. */
proctype Resume() {
  byte k;
  status == PAUSED -> LOCK(110);
  atomic {
    if :: status == PAUSED && (!DOUBT || mutant == EARLY_RESUME) ->
         if :: mutant == NO_BUMP -> version = ended; :: else -> version++ fi;
         status = ACTIVE;
         for (k : 0 .. N - 1) {                                     /* safe to run: under the same key, again */
           if :: effect[k] == DECLARED || (mutant == EARLY_RESUME && effect[k] == IN_DOUBT) ->
                if :: gone[k] -> effect[k] = DECLARED; permit[k] = NONE; expired[k] = false; gone[k] = false;
                      told_not[k] = false; run Worker(k, version) :: else fi
              :: else fi }
       :: else fi;
    UNLOCK }
}

init {
  c_code { now.mutant = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0; };
  atomic {
    run Worker(0, 1); run Provider(); run Stop(); run Drain(); run LookUp(0);
#if N > 1
    run Worker(1, 1); run LookUp(1)
#else
    run Clock(); run Resume()
#endif
  }
}

/* I10: nothing of which anybody was told that it did not happen is there. */
#define honest(i) (!(told_not[i] && applied[i]) && !(effect[i] == CONFIRMED && !applied[i]))
#if N > 1
ltl truth { [] (honest(0) && honest(1)) }
#else
ltl truth { [] honest(0) }
#endif
