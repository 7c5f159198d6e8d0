-- claim_queue: claim the lease of a due queue.
-- A queue whose start task is unfinished is due again shortly. The queue of a start task that has failed or is gone is
-- dropped.
-- KEYS  root of the start tasks
-- ARGV  lease:text id, one per claim  span:int of the lease, µs
--       poll:int µs after which an unfinished start task is read again
-- Returns  (conversation:text entry:bytes tried:int queue:hash): its first message after its id, µs of failed attempts,
--          its state | missing: there is none
-- Cost  O(log q): q queues
-- Idempotent  no: a repeat claims another one; the first is claimed again when its lease ends
-- include: _queue.lua
-- include: _tried.lua
note_presence(DRIVEN, span)
for _, conversation in ipairs(redis.call('ZRANGEBYSCORE', root .. ':queues', '-inf', now, 'LIMIT', 0, 100)) do
  local first = redis.call('LINDEX', root .. ':queue:' .. conversation, 0)
  local start_id = state_of(conversation, 'start_id') or ''
  local status = start_id ~= '' and (field(start_id, 'status') or 'ERROR') or 'READY'
  if not first or status == 'ERROR' then
    drop(conversation)
  elseif not FINISHED[status] then
    redis.call('ZADD', root .. ':queues', now + poll, conversation)
  else
    redis.call('HSET', root .. ':queued:' .. conversation, 'start_id', '', 'lease', lease)
    local tried = tried_for(state_of(conversation, 'tried'))
    redis.call('HSET', root .. ':queued:' .. conversation, 'tried', tried .. ' ' .. now)
    redis.call('ZADD', root .. ':queues', now + span, conversation)
    return {conversation, first, tried, redis.call('HGETALL', root .. ':queued:' .. conversation)}
  end
end
return false
