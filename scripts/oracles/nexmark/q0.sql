-- Every bid.
SELECT * FROM bids;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', channel: 'VARCHAR', url: 'VARCHAR', date_time: 'BIGINT', extra: 'VARCHAR'});
