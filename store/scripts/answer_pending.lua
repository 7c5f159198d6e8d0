-- answer_pending: accept or reject the pending actions; the first answer wins, and wins for every pending action.
-- Accept: status running. Reject: status idle, then one UserRejectObservation per action in log order.
-- Either way the actions can no longer be answered. In a sandbox the agent writes status and observations when it
-- receives the answer; the field `answer` holds the answer until then.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per answer   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 "accept" | "reject"   6 reason as JSON
-- Returns  {"won" | "nothing_pending", revision, execution_status, created_at, updated_at, groups} | false: no such conversation
-- Cost  O(p log n): p pending actions, at most MAX_PENDING_ACTIONS, n events of the conversation; writes p times the
--       reason and the names of the action
-- Idempotent  by id prefix: a repeat of the answer that won finds its own event and returns "won"
-- include: _log.lua
-- include: _actions.lua
-- include: _status.lua
if not open_log(ARGV[1]) then return false end
if redis.call('HEXISTS', root .. ':ids', minted_id(1)) == 1 then return close_log('won', ARGV[4]) end
if string.find(redis.call('HGET', root, 'answer') or '', ARGV[1], 1, true) == 1 then return close_log('won', ARGV[4]) end
local actions = after(ARGV[5]) and open_actions() or {}
if #actions == 0 then return close_log('nothing_pending', ARGV[4]) end

local stamp = {iso = ARGV[2], score = ARGV[3]}
if redis.call('HEXISTS', root, 'sandbox_id') == 1 then
  local ids = {}
  for _, action in ipairs(actions) do ids[#ids + 1] = action.id end
  redis.call('HSET', root, 'answer', table.concat({ARGV[1], ARGV[5], ARGV[3], ARGV[6], cjson.encode(ids)}, '\n'))
  close_actions()
elseif ARGV[5] == 'accept' then
  set_status(after('accept'), not_before(actions, stamp))
  close_actions()
else
  reject_actions(actions, ARGV[6], stamp)
end
return close_log('won', ARGV[4])
