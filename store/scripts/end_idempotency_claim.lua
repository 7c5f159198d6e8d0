-- end_idempotency_claim: end an attempt: its response is kept, or the record may be claimed again, or the key is free.
-- KEYS  root of the client's records
-- ARGV  key:text its digest  token:text of the attempt  span:int µs for which a record is kept
--       outcome:text "finished", "released" or "forgotten"
--       word:text finished: status of the response ("" it is not kept); released: "1" where an attempt may have reached an
--       agent
--       content_type:text with other headers  body:text
-- Returns  "ended" | "late": another attempt has claimed the record since, or it has expired
-- Cost  O(log r): r records of the client
-- Idempotent  by token: a repeat finds the record without it, and is late
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- Full  goes on: the request that it ends has had its effect
-- include: _idempotency.lua
if redis.call('HGET', root .. ':key:' .. key, 'token') ~= token then return 'late' end
if outcome == 'forgotten' then
  redis.call('UNLINK', root .. ':key:' .. key)
  redis.call('ZREM', root .. ':live', key)
  return 'ended'
end
redis.call('HDEL', root .. ':key:' .. key, 'token')
if outcome == 'finished' then
  redis.call('HSET', root .. ':key:' .. key, 'status', word, 'content_type', content_type, 'body', body)
else
  redis.call('HSET', root .. ':key:' .. key, 'lease', '0', 'later', word)
end
keep(key, span)
return 'ended'
