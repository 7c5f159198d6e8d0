-- claim_start_task: claim an unfinished start task without a driver.
-- A start task that has failed too often ends, an id without an unfinished start task leaves the queue, and a few old
-- finished ones are deleted.
-- KEYS  root of the start tasks
-- ARGV  lease:text one id per claim  span:int µs of the lease  most:int failures of one
--       detail:text after so many failures  kept:int µs after which a finished start task is deleted
-- Returns  hash | missing: there is none
-- Cost  O(log s): s start tasks
-- Idempotent  no: a repeat claims another one; the first is claimed again when its lease ends
-- include: _start_task.lua
note_presence(DRIVEN, span)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':updated', '-inf', now - kept, 'LIMIT', 0, 10)) do
  local status = field(id, 'status')
  if not status or FINISHED[status] then forget(id) end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', now, 'LIMIT', 0, 100)) do
  local status = field(id, 'status')
  if not status or FINISHED[status] then
    redis.call('ZREM', root .. ':due', id)
  elseif tonumber(field(id, 'attempts') or 0) >= most then
    finish(id, 'ERROR', detail)
  else
    redis.call('HSET', root .. ':task:' .. id, 'lease', lease)
    redis.call('ZADD', root .. ':due', now + span, id)
    return redis.call('HGETALL', root .. ':task:' .. id)
  end
end
return false
