-- claim_sweep: take the next part of the sweep, which compares the index of approvals with the conversations, unless one
-- was taken a moment ago.
-- KEYS  1 approvals root, {approvals}
-- ARGV  1 µs between two parts   2 most conversations of the index
-- Returns  {cursor in the listing: time in µs and id, both empty at its beginning, then the conversations of the index that
--          were compared longest ago} | false: it is not time yet
-- Cost  O(m log c): c conversations in the index, m those taken
-- Idempotent  a repeat takes nothing: what was taken and not compared is compared in the next rotation
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _clock.lua
local last = redis.call('HGET', root .. ':sweep', 'at')
local passed = last and now - last -- negative: the clock stepped back
if passed and passed >= 0 and passed < tonumber(ARGV[1]) then return false end
redis.call('HSET', root .. ':sweep', 'at', now)
local cursor = redis.call('HMGET', root .. ':sweep', 'created', 'id')
local reply = {cursor[1] or '', cursor[2] or ''}
for _, conversation in ipairs(redis.call('ZRANGE', root .. ':checks', 0, tonumber(ARGV[2]) - 1)) do
  redis.call('ZADD', root .. ':checks', now, conversation)
  reply[#reply + 1] = conversation
end
return reply
