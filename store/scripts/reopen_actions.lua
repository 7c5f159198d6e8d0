-- reopen_actions: make the open actions those that an agent waits for: after a restart it may wait again for actions that
-- were decided, and no longer for others. Single decisions that the agent has not received go on to count where it waits
-- for exactly the actions of before and one of them is undecided, whose decision will deliver all; else none counts.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 now, UTC text with Z   2 seconds until a pending action expires, where the conversation says nothing (0: never)
--       then three per action: id, time in µs, the member `open` of its effect as JSON
-- Returns  number of actions that are open now | false: no such conversation
-- Cost  O(p + a): p actions that were open, a actions given
-- Idempotent  a repeat makes the same actions open; one that was open and undecided keeps its record, and so do the
--             decided ones where all are the same
-- Log  needed
-- include: _audit.lua
if not open_log('') then return false end
local seconds = tonumber(redis.call('HGET', root, 'confirmation_seconds') or ARGV[2])
local words, stored, known, undecided = {}, redis.call('HGETALL', root .. ':pending'), {}, 0
for i = 1, #stored, 2 do
  known[stored[i]] = {text = stored[i + 1], decided = cjson.decode(stored[i + 1]).decided}
  if not known[stored[i]].decided then undecided = undecided + 1 end
end
local is_same = undecided > 0 and #stored / 2 == (#ARGV - 2) / 3
for i = 3, #ARGV, 3 do is_same = is_same and known[ARGV[i]] ~= nil end
for i = 3, #ARGV, 3 do
  local id, at, open = unpack(ARGV, i, i + 2)
  local seq, record = seq_of(id, log.stored), known[id]
  if seq then
    local action = cjson.decode(open)
    local kept = record and (is_same or not record.decided) and record.text
    local expires = seconds > 0 and string.format('%.0f', now + seconds * 1000000) or nil
    words[#words + 1], words[#words + 2] = id, kept or cjson.encode({seq = seq, at = at, time = action.time,
      since = ARGV[1], group = action.group, call = action.call, subject = action.subject, name = action.name,
      digest = action.digest, tool = action.tool, risk = action.risk, expires = expires, size = action.size})
  end
end
redis.call('DEL', root .. ':pending')
call_with_all('HSET', root .. ':pending', words)
change_approvals()
return #words / 2
