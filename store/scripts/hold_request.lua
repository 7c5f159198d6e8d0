-- hold_request: count an open request of a key, or its session, within their limits; or stop counting it.
-- KEYS  root of what the key asks
-- ARGV  conversation:text its session  request:text "" only the session  lease:int seconds; 0: the request has ended
--       most:int open requests of the key  most_here:int of the session  most_sessions:int of the key in a day
-- Returns  "held" | "full" | "session_full" | "too_many_sessions"
-- Cost  O(o): o open requests of the key
-- Idempotent  a repeat counts the same request once
-- Kept  not proven: a lost count only widens a limit
-- include: _clock.lua
local DAY = 86400
if lease == 0 then
  redis.call('ZREM', root .. ':open', request)
  return 'held'
end
redis.call('ZREMRANGEBYSCORE', root .. ':open', '-inf', now)
redis.call('ZREMRANGEBYSCORE', root .. ':sessions', '-inf', string.format('%.0f', now - DAY * 1000000))
if not redis.call('ZSCORE', root .. ':sessions', conversation) then
  if redis.call('ZCARD', root .. ':sessions') >= most_sessions then return 'too_many_sessions' end
  redis.call('ZADD', root .. ':sessions', now, conversation)
  redis.call('EXPIRE', root .. ':sessions', DAY)
end
if request == '' then return 'held' end
if not redis.call('ZSCORE', root .. ':open', request) then
  local members, here = redis.call('ZRANGE', root .. ':open', 0, -1), 0
  if #members >= most then return 'full' end
  for _, member in ipairs(members) do
    if string.sub(member, 1, #conversation) == conversation then here = here + 1 end
  end
  if here >= most_here then return 'session_full' end
end
redis.call('ZADD', root .. ':open', string.format('%.0f', now + lease * 1000000), request)
redis.call('EXPIRE', root .. ':open', 3 * DAY)
return 'held'
