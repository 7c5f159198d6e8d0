-- decide_pending: accept or reject the pending actions, all at once; the first decision wins.
-- Accept: status running. Reject: status idle, then one UserRejectObservation per action in log order.
-- Either way the actions can no longer be decided. In a sandbox the agent writes status and observations when it receives
-- the decision, which stands in the fields `delivery_…` until then: the caller delivers it, and nothing else changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events, one per decision; in a sandbox also the delivery's id
--       2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 "accept" | "reject"   6 reason as JSON   7 sandbox that the conversation lives in ("" none)
--       8 latest time of the decision by Redis' clock, µs ("" no matter): a later decision might stay undelivered
--       9 "1": the caller may decide, else "0"   10 "CLAIM TOKEN" that the agent will make after this ("" none)
-- Returns  {"won" | "nothing_pending" | "late" | "forbidden", revision, execution_status, created_at, updated_at, groups, title, then in a sandbox
--          what _outstanding.lua returns} | false: no such conversation in that sandbox
-- Cost  O(p log n): p pending actions, n events of the conversation
-- Idempotent  by id prefix: a repeat of the decision that won finds its own event, or its delivery, and returns "won"
-- include: _clock.lua
-- include: _log.lua
-- include: _actions.lua
-- include: _status.lua
-- include: _outstanding.lua
-- include: _echoes.lua
if not open_log(ARGV[1]) then return false end
local sandbox_id = redis.call('HGET', root, 'sandbox_id') or ''
if sandbox_id ~= ARGV[7] then return false end

local function close(outcome) return close_log(outcome, ARGV[4], unpack(outstanding())) end

if redis.call('HEXISTS', root .. ':ids', minted_id(1)) == 1 then return close('won') end
if redis.call('HGET', root, 'delivery_id') == ARGV[1] then return close('won') end
if ARGV[8] ~= '' and tonumber(now) > tonumber(ARGV[8]) then return close('late') end
local actions = after(ARGV[5]) and open_actions() or {}
if #actions > 0 and ARGV[9] ~= '1' then return close('forbidden') end
if ARGV[10] ~= '' then
  local claim, token = string.match(ARGV[10], '^(.*) (%S+)$')
  expect(claim, token, now)
end
if #actions == 0 then return close('nothing_pending') end

local stamp = {iso = ARGV[2], score = ARGV[3]}
if sandbox_id ~= '' then
  local ids = {}
  for _, action in ipairs(actions) do
    ids[#ids + 1] = action.id
    if ARGV[5] == 'reject' then expect('reject ' .. action.id, ARGV[1], now) end
  end
  redis.call('HSET', root, 'delivery_id', ARGV[1], 'delivery_verb', ARGV[5], 'delivery_reason', ARGV[6],
    'delivery_actions', cjson.encode(ids), 'delivery_at', now)
  close_actions()
elseif ARGV[5] == 'accept' then
  set_status(after('accept'), not_before(actions, stamp))
  close_actions()
else
  reject_actions(actions, ARGV[6], stamp)
end
return close('won')
