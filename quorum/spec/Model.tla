-------------------------------- MODULE Model --------------------------------
(* Kraftlab in small. Bounds make the number of states finite, and two      *)
(* reductions make it small; README.md says why they lose no bad state.     *)
(*                                                                          *)
(* 1. What can only help is done at once: messages leave, votes and         *)
(*    acknowledgements are counted, and a disk that will not fail completes *)
(*    its operations. `Settle` does that for all nodes, between two steps.  *)
(* 2. Nodes campaign without pre-votes, unless "pre-votes" is in Parts.     *)
EXTENDS Kraftlab, TLC

CONSTANTS MaxEpoch, MaxLog, MaxCampaigns, MaxProposals, MaxRestarts, MaxChanges, MaxReads, Parts
                                        \* MaxProposals may be Nobody: as many as logs may hold
CONSTANTS Turn1, Turn2, Turn3, Turn4    \* the node of each campaign; Nobody leaves the choice to TLC
CONSTANTS Side1, Side2, Side3, Side4    \* an epoch's leader and the nodes that may follow it; others vote

VARIABLE used       \* how much of the bounds is used

all == <<node, disk, net, ghost, used>>
Turns == <<Turn1, Turn2, Turn3, Turn4>>
Sides == <<Side1, Side2, Side3, Side4>>
HasSides == \E i \in 1..Len(Sides) : Sides[i] # Node
KeepsAll == "all messages" \in Parts

-------------------------------------------------------------------------------
(* Settling.                                                                *)

RECURSIVE Fold(_, _, _)
Fold(Add(_, _), value, set) == IF set = {} THEN value ELSE LET x == CHOOSE y \in set : TRUE IN Fold(Add, Add(value, x), set \ {x})

\* The memory of `n` with every vote and acknowledgement counted that has arrived.
Counted(n) ==
    LET s == node[n]
        grants == {<<m.from, m.isPreVote>> : m \in {m \in Addressed(n) : IsGrant(n, m)}}
    IN IF s.role = "leader"
       THEN Fold(LAMBDA t, m : Acknowledged(t, n, m), s, {m \in Addressed(n) : IsFetchFor(n, m)})
       ELSE [s EXCEPT !.grants = @ \cup grants]

Offsets(n) == 1..End(node[n].log)

\* The ends of the answers that a leader gives: everything that it has, or less.
Tos(n) == IF "short answers" \in Parts THEN Offsets(n) ELSE {End(node[n].log)}

\* Everything that `n` can send now.
Sendable(n) ==
    LET s == node[n]
        others == Node \ {n}
        inbox == Addressed(n)
    IN CASE s.role = "leader" ->
              {Announcement(n, to) : to \in others}
              \cup UNION {{Answer(n, m, to) : to \in Tos(n)} : m \in {m \in inbox : IsToServe(n, m) /\ m.offset >= s.start}}
              \cup IF "snapshots" \notin Parts THEN {} ELSE
                   {FetchReply(n, m, "snapshot", <<>>) : m \in {m \in inbox : IsToServe(n, m) /\ m.offset < s.start}}
                   \cup UNION {{SnapshotReply(n, m, o) : o \in {o \in {s.start} : MayServe(n, m, o)}} : m \in inbox}
         [] s.role = "resigned" -> {}
         [] OTHER ->
              {VoteRequest(n, to) : to \in {to \in others : MayRequest(n, to)}}
              \cup {VoteReply(n, m) : m \in {m \in inbox : MayGrant(n, m)}}
              \cup (IF s.role = "follower" THEN {FetchRequest(n, s.leader)} ELSE {})
              \cup (IF s.role = "follower" /\ "snapshots" \in Parts THEN {SnapshotRequest(n)} ELSE {})

\* The lowest epoch that a process of `n` can be in, now or after a restart.
OldestEpoch(n) ==
    LET Least(set) == CHOOSE x \in set : \A y \in set : x <= y
    IN IF used.restarts < MaxRestarts THEN Least({node[n].epoch} \cup {e.epoch : e \in Elections(n)}) ELSE node[n].epoch

\* A receiver can still take notice of a message. If nobody restarts any more, a message of the receiver's own epoch is of use only
\* as long as the receiver waits for it.
IsOfUse(m) ==
    LET to == node[m.to]
        from == node[m.from]
        IsAwaited ==
            CASE m.type = "Vote" -> m.isPreVote \/ (to.leader = Nobody /\ to.voted = Nobody)
              [] m.type = "VoteReply" -> to.role = (IF m.isPreVote THEN "prospective" ELSE "candidate")
              [] m.type \in {"Begin", "End"} -> to.leader = Nobody
              [] m.type = "Fetch" -> from.epoch = m.epoch /\ m.offset = End(from.log) /\ m.round = from.round
              [] m.type = "FetchReply" -> to.role # "follower" \/ IsOfThisLog(m.to, m)
              [] OTHER -> TRUE
    IN /\ \/ KeepsAll
          \/ m.epoch >= OldestEpoch(m.to) /\ (used.restarts < MaxRestarts \/ m.epoch > to.epoch \/ IsAwaited)
       /\ HasSides => m.type \in {"Vote", "VoteReply"} \/ {m.from, m.to} \subseteq Sides[m.epoch]

News(n, messages) == {m \in messages : IsOfUse(m) /\ m \notin net /\ \A i \in node[n].outbox : i.m # m}

Settled(n) ==
    LET s == Counted(n)
        items == s.outbox \cup {Item(s, m) : m \in News(n, Sendable(n))}
        isNamed == s.isNamed \/ \E m \in News(n, Sendable(n)) : m.type = "FetchReply"
        t == [s EXCEPT !.outbox = items, !.isNamed = isNamed]
    IN IF used.restarts < MaxRestarts \/ "slow disks" \in Parts THEN t
       ELSE [t EXCEPT !.outbox = Waiting(t, Len(s.storing), Len(s.writing)), !.storing = <<>>, !.writing = <<>>]

IsSettled == (\A n \in Node : Settled(n) = node[n]) /\ \A m \in net : IsOfUse(m)

Settle ==
    LET next == [n \in Node |-> Settled(n)] IN
    /\ node' = [n \in Node |-> [next[n] EXCEPT !.outbox = @ \ Ready(@)]]
    /\ net' = {m \in net \cup UNION {{i.m : i \in Ready(next[n].outbox)} : n \in Node} : IsOfUse(m)}
    /\ disk' = [n \in Node |-> [disk[n] EXCEPT
                    !.log = IF next[n].writing = node[n].writing \/ node[n].writing = <<>> THEN @ ELSE Last(node[n].writing).log,
                    !.election = IF next[n].storing = node[n].storing \/ node[n].storing = <<>> THEN @ ELSE Last(node[n].storing)]]
    /\ UNCHANGED <<ghost, used>>

-------------------------------------------------------------------------------

Batch(n, voters) == [epoch |-> node[n].epoch, end |-> End(node[n].log) + 1, id |-> <<n, used.restarts>>, voters |-> voters]

\* The highest offset that a majority has reached.
Reached(n) == LET held == {o \in Offsets(n) \cup {0} : o = 0 \/ IsHeld(n, o)} IN CHOOSE o \in held : \A p \in held : p <= o

Free(n) ==
    \/ "pre-votes" \in Parts /\ (Stand(n) \/ StandDown(n))
    \/ Lead(n, Batch(n, {}))
    \/ Commit(n, Reached(n))
    \/ Durable(n, 1) \/ Stored(n, 1)
    \/ \E m \in Addressed(n) : AdoptEpoch(n, m) \/ Follow(n, m) \/ Vote(n, m) \/ TakeRecords(n, m) \/ Truncate(n, m)
    \/ "resigning" \in Parts /\ (Resign(n) \/ OpenEpoch(n))
    \/ "snapshots" \in Parts /\ ((\E offset \in Offsets(n) : Clean(n, offset)) \/ (\E m \in Addressed(n) : Copy(n, m)) \/ Install(n))
    \/ \E read \in node[n].reads : AnswerRead(n, read)

Uses(what, most) == used[what] < most /\ used' = [used EXCEPT ![what] = @ + 1]

Step(n) ==
    \/ UNCHANGED used /\ Free(n)
    \/ Uses("campaigns", MaxCampaigns) /\ Turns[used.campaigns + 1] \in {n, Nobody}
       /\ IF "pre-votes" \in Parts THEN Campaign(n) ELSE CampaignAtOnce(n)
    \/ (IF MaxProposals = Nobody THEN UNCHANGED used ELSE Uses("proposals", MaxProposals)) /\ Len(node[n].log) < MaxLog /\ Propose(n, Batch(n, {}))
    \/ Uses("restarts", MaxRestarts) /\ \E image \in Images(n), e \in Elections(n) :
          \E hw \in {-1, Min(node[n].hw, End(image))} : Restart(n, image, e, 0, hw)
    \/ Uses("changes", MaxChanges) /\ \E voters \in SUBSET Node : voters # Voters(node[n].log) /\ Propose(n, Batch(n, voters))
    \/ Uses("reads", MaxReads) /\ AskRead(n, 0)

Next == IF IsSettled THEN \E n \in Node : Step(n) ELSE Settle
Start == Init /\ used = [campaigns |-> 0, proposals |-> 0, restarts |-> 0, changes |-> 0, reads |-> 0]
Spec == Start /\ [][Next]_all

\* What no action of this model asks for.
Seen ==
    LET Plain(s) == [s EXCEPT !.fetchers = {}, !.heard = @ /\ "pre-votes" \in Parts, !.echoed = IF MaxReads = 0 THEN NoProgress ELSE @]
    IN <<[n \in Node |-> Plain(node[n])], disk, net, ghost, used>>

Small == \A n \in Node : node[n].epoch <= MaxEpoch /\ Len(node[n].log) <= MaxLog
Alike == {n \in Node : \A i \in 1..Len(Turns) : n # Turns[i] /\ n \in Sides[i]}
Symmetry == Permutations(FirstVoters \cap Alike) \cup Permutations(Alike \ FirstVoters)
===============================================================================
