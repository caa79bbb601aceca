/* A run, a backup, and its restore, once or twice, while old workers live on with what they were given. Each
 * proctype names the verb that it mirrors. That one transaction meets another is shown by gate.pml; here each is
 * one step. MUTANT as there.
 *
 * Not promised, and so not asked: what was sent between a backup and its restore is in no row any more. Only its
 * stable key, at the provider, keeps it from being applied twice.
 */
mtype = { ACTIVE, PAUSED, NONE, OPEN, NOT_SENT, REPORTED, LOST, DECLARED, DISPATCHED, CONFIRMED, IN_DOUBT, ACCEPTED };

/* A million there: more than anybody was given since. */
#define LEAP 10

/* Mutants: one guard is gone. */
#define NO_LEAP    1       /* the version of the backup is taken as it is */
#define NO_BEFORE  2       /* it leaps from the backup's version, not from that of the replaced database */
#define NO_HOLD    3       /* a run that was ACTIVE goes on: the stop that came after the backup is lost */
#define NO_LOSE    4       /* permits stay OPEN: the leap makes up for it, their version is none any more */
#define NO_DOUBT   5       /* what was in flight is taken for "not started yet" */
#define NO_GATE    6       /* the resume asks no gate, nor the list of effects */

/* NO_LOSE with those off that mask it, so that it is seen; and the same with permits LOST, which has to hold. Of
 * both, the assertions that the others break are not asked: I7 alone is.
 */
#define NO_LOSE_PAIR    7   /* NO_LOSE, NO_LEAP and NO_HOLD */
#define LOSE_CONTROL    8   /* NO_LEAP and NO_HOLD: survives, by the lost permit alone */
#define LEAPS           (mutant != NO_LEAP && mutant != NO_LOSE_PAIR && mutant != LOSE_CONTROL)
#define HOLDS           (mutant != NO_HOLD && mutant != NO_LOSE_PAIR && mutant != LOSE_CONTROL)
#define LOSES           (mutant != NO_LOSE && mutant != NO_LOSE_PAIR)
#define ALONE(what)     ((what) || mutant == NO_LOSE_PAIR || mutant == LOSE_CONTROL)

/* Situations that the search must come to. */
#define SITUATION(n, what) if :: mutant == n && (what) -> assert(false) :: else fi
#define STALE_ASK    51    /* somebody asked with a version from before the restore, and was refused */
#define STALE_LOOK   52    /* somebody looked with a permit from before it, and sent nothing */
#define IN_FLIGHT    53    /* something was in flight at the backup, and was applied */
#define GOES_ON      54    /* after release and resume a run dispatches again */
#define TWICE        55    /* restored a second time */
#define STOP_LOST    56    /* the stop came after the backup */

c_code { \#include <stdlib.h> };
byte mutant = 0;

mtype status = ACTIVE;  byte version = 1;  bool shut = false;
mtype permit = NONE;  byte seen;  byte holder = 255;  mtype effect = DECLARED;
mtype b_status;  byte b_version;  mtype b_permit;  byte b_seen;  byte b_holder;  mtype b_effect;  byte b_given;
bool taken = false;
/* the world */
byte era = 0;              /* how many restores there were */
byte given;                /* the era of the row's permit */
bool decided = true;       /* no stop and no restore came since a person decided that the run goes on */
byte times;  bool known;   /* how often it was applied; whether the backup knew that it was sent */

/* gate.dispatch → gate.look → the send → settle.report; told by drain.heartbeat which version is current. */
proctype Worker(byte me) {
  byte carried, when, tries = 0; bool go, open;
again:
  atomic { carried = version; when = era; tries++ };                /* heartbeat, and the time that passes after it */
  atomic {
    go = (status == ACTIVE && !shut && version == carried && effect == DECLARED && permit == NONE);
    if :: go ->
         assert(ALONE(when == era));                                /* I1: no version from before a restore */
         assert(ALONE(decided));                                           /* I5, I17: a restore starts nothing */
         SITUATION(GOES_ON, era > 0);
         permit = OPEN; seen = carried; holder = me; given = era; effect = DISPATCHED
       :: else -> SITUATION(STALE_ASK, when < era) fi
  };
  if :: !go -> if :: tries < 2 -> goto again :: goto done fi :: else fi;
  if :: goto done :: skip fi;
  atomic {                                                          /* by its own token: of no row, it is NotFound */
    open = (permit == OPEN && holder == me && seen == carried && status == ACTIVE && version == carried);
    if :: open -> assert(given == era)                              /* I7: no permit from before a restore */
       :: else -> SITUATION(STALE_LOOK, when < era);
            if :: holder == me && permit == OPEN -> permit = NOT_SENT; effect = DECLARED :: else fi
    fi
  };
  if :: !open -> goto done :: else fi;
  if :: goto done :: skip fi;
  atomic { times++; SITUATION(IN_FLIGHT, known && era > 0);
    assert(!(known && times > 1)) };                                /* I6, of what the backup knew */
  if :: goto done
     :: atomic { if :: holder == me && given == when && seen == carried && (permit == OPEN || permit == LOST) ->
            permit = REPORTED; effect = CONFIRMED :: else fi }      /* else NotFound: the row is gone */
  fi;
done:
  atomic { go = false; open = false; carried = 0; when = 0; tries = 0 }
}

/* backup.take: one consistent snapshot. */
proctype Backup() {
  atomic { b_status = status; b_version = version; b_permit = permit; b_seen = seen; b_holder = holder;
           b_effect = effect; b_given = given; taken = true }
}

/* stops.request_stop, and drain.drain_run, which brings the run to rest: what is lost is in doubt. */
proctype Stop() {
  atomic {
    if :: status == ACTIVE ->
         status = PAUSED; version++; decided = false; SITUATION(STOP_LOST, taken);
         if :: permit == OPEN -> permit = LOST; effect = IN_DOUBT :: else fi
       :: else fi }
}

/* restore.put_to_rest: the rows of the backup, no version given twice, every gate shut, what was in flight unknown. */
proctype Restore() {
  byte before, turns = 0;
again:
  taken;
  atomic {
    before = version; era++; turns++; SITUATION(TWICE, era > 1);
    status = b_status; version = b_version; permit = b_permit; seen = b_seen; holder = b_holder; effect = b_effect;
    given = b_given;
    known = (b_effect != DECLARED);
    if :: before > version && mutant != NO_BEFORE && LEAPS -> version = before :: else fi;
    if :: LEAPS -> version = version + LEAP :: else fi;
    shut = HOLDS; decided = false;
    if :: status == ACTIVE && HOLDS -> status = PAUSED :: else fi;
    if :: permit == OPEN && LOSES -> permit = LOST :: else fi;
    if :: effect == DISPATCHED ->
         if :: mutant == NO_DOUBT -> effect = DECLARED; permit = NONE :: else -> effect = IN_DOUBT fi
       :: else fi;
    if :: !known -> times = 0 :: else fi                            /* that one is not promised, see above */
  };
  if :: turns < 2 -> goto again :: skip fi
}

/* reconcile.apply_answer (presence proves, absence does not while a permit is LOST), resolve.resolve by two people. */
proctype Settle() {
end:
  do :: atomic { effect == IN_DOUBT && times > 0 -> effect = CONFIRMED }
     :: atomic { effect == IN_DOUBT -> effect = ACCEPTED }
  od
}

/* releases.release, by an admin; then resume.resume: a decision at a new version, never while one is in doubt. */
proctype People() {
end:
  do :: atomic { shut -> shut = false }
     :: atomic { status == PAUSED && version < 60 && ((!shut && effect != IN_DOUBT && effect != DISPATCHED) || mutant == NO_GATE) ->
          status = ACTIVE; version++; decided = true;
          if :: mutant == NO_GATE && effect == IN_DOUBT -> effect = DECLARED :: else fi;
          if :: effect == DECLARED -> permit = NONE; holder = 255 :: else fi }
  od
}

init {
  c_code { now.mutant = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0; };
  atomic { run Worker(0); run Worker(1); run Backup(); run Stop(); run Restore(); run Settle(); run People() }
}

/* What the backup knew to be sent is not said to be waiting to be sent. */
ltl told { [] !(known && times > 0 && effect == DECLARED) }
