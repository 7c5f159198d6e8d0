-- reopen_actions: make the open actions those that an agent waits for.
-- After a restart it may wait again for decided actions, and no longer for others. Single decisions that the agent has
-- not received stay valid only if it waits for exactly the same actions and one of them is undecided, whose decision
-- will deliver all.
-- KEYS  root of the conversation
-- ARGV  time:text now, UTC with Z  expiry:int default seconds until a pending action expires; 0: never
--       actions:(id:text at:micros open:json)* the member `open` of its effect
-- Returns  int: number of open actions | missing: no such conversation
-- Cost  O(p + a): p actions that were open, a actions given
-- Idempotent  a repeat makes the same actions open; open undecided ones keep their records, and so do decided ones if
--             all are the same
-- Log  needed
-- include: _audit.lua
if not open_log('') then return false end
local seconds = tonumber(redis.call('HGET', root, 'confirmation_seconds') or expiry)
local words, stored, known, undecided = {}, redis.call('HGETALL', root .. ':pending'), {}, 0
for i = 1, #stored, 2 do
  known[stored[i]] = {text = stored[i + 1], decided = cjson.decode(stored[i + 1]).decided}
  if not known[stored[i]].decided then undecided = undecided + 1 end
end
local is_same, number = undecided > 0, 0
for id in actions() do is_same, number = is_same and known[id] ~= nil, number + 1 end
is_same = is_same and #stored / 2 == number
for id, at, open in actions() do
  local seq, record = seq_of(id, log.stored), known[id]
  if seq then
    local action = cjson.decode(open)
    local kept = record and (is_same or not record.decided) and record.text
    local expires = seconds > 0 and string.format('%.0f', now + seconds * 1000000) or nil
    words[#words + 1], words[#words + 2] = id, kept or cjson.encode({seq = seq, at = at, time = action.time,
      since = time, group = action.group, call = action.call, subject = action.subject, name = action.name,
      digest = action.digest, tool = action.tool, shown = action.shown, risk = action.risk, expires = expires, size = action.size})
  end
end
redis.call('DEL', root .. ':pending')
call_with_all('HSET', root .. ':pending', words)
change_approvals()
return #words / 2
