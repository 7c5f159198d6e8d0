-- _status: the state machine of execution_status.
-- MOVES has the next status by verb and current status; other statuses refuse the verb. A state event that an agent
-- posts is always applied.
-- include: _log.lua
local MOVES = {
  run = {idle = 'running', paused = 'running', error = 'running', stuck = 'running', finished = 'finished',
    waiting_for_confirmation = 'running'},
  pause = {idle = 'paused', running = 'paused', paused = 'paused',
    waiting_for_confirmation = 'waiting_for_confirmation', finished = 'finished', error = 'error', stuck = 'stuck'},
  interrupt = {idle = 'paused', running = 'paused', paused = 'paused',
    waiting_for_confirmation = 'waiting_for_confirmation', finished = 'finished', error = 'error', stuck = 'stuck'},
  accept = {waiting_for_confirmation = 'running'},
  reject = {waiting_for_confirmation = 'idle'},
  message = {idle = 'idle', running = 'running', paused = 'paused', waiting_for_confirmation = 'idle',
    finished = 'idle', error = 'error', stuck = 'idle', deleting = 'deleting'},
}

-- Returns the next status for a verb; nil if it is refused.
local function after(verb)
  return MOVES[verb][log.status]
end
