-- _transfer: a stream of chunks from a sender to a receiver.
-- Included by every script that uses one. It is not written to the append-only file or a replica: it lives for seconds,
-- and a failover aborts it.
if redis.set_repl then redis.set_repl(redis.REPL_NONE) end -- fakeredis has neither file nor replica

local function state(id, name) return redis.call('HGET', root .. ':transfer:' .. id, name) end

-- Keeps both keys of a transfer for another span, ms. False if it is gone.
local function keep(id, span)
  redis.call('PEXPIRE', root .. ':chunks:' .. id, span)
  return redis.call('PEXPIRE', root .. ':transfer:' .. id, span) == 1
end
