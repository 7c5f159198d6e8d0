-- reopen_actions: make the open actions those that an agent waits for: after a restart it may wait again for actions that
-- were decided, and no longer for others.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 now, UTC text with Z   then three per action: id, time in µs, the member `open` of its effect as JSON
-- Returns  number of actions that are open now | false: no such conversation
-- Cost  O(p + a): p actions that were open, a actions given
-- Idempotent  a repeat makes the same actions open; one that was open keeps its record
-- include: _log.lua
if not open_log('') then return false end
local words = {}
for i = 2, #ARGV, 3 do
  local id, at, open = unpack(ARGV, i, i + 2)
  local seq, known = redis.call('HGET', root .. ':ids', id), redis.call('HGET', root .. ':pending', id)
  if seq then
    local action = cjson.decode(open)
    words[#words + 1], words[#words + 2] = id, known or cjson.encode({seq = tonumber(seq), at = at, time = action.time,
      since = ARGV[1], group = action.group, call = action.call, subject = action.subject})
  end
end
redis.call('DEL', root .. ':pending')
call_with_all('HSET', root .. ':pending', words)
return #words / 2
