-- answer_pending: accept or reject what waits; the first answer wins, and wins for every pending action.
-- Accept: status running. Reject: status idle, then one UserRejectObservation per action in log order.
-- Either way the actions can no longer be answered.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per answer   2 "accept" | "reject"   3 reason as JSON
--       4 now, naive UTC text   5 now, µs   6 now, UTC text with Z
-- Returns  "won" | "nothing_pending" | false: no such conversation
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by id prefix: a repeat of the answer that won finds its own event and returns "won"
-- include: _log.lua
if not open_log(ARGV[1]) then return false end
if redis.call('HEXISTS', root .. ':ids', minted_id(1)) == 1 then return 'won' end
local actions = log.status == 'waiting_for_confirmation' and open_actions() or {}
if #actions == 0 then return 'nothing_pending' end

local stamp = {iso = ARGV[4], score = ARGV[5]}
if ARGV[2] == 'accept' then
  set_status('running', not_before(actions, stamp))
  close_actions()
else
  reject_actions(actions, ARGV[3], stamp)
end
close_log(ARGV[6])
return 'won'
