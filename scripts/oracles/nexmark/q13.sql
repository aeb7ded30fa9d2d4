-- Every bid with the value that a table has for its auction.
SELECT auction, bidder, price, date_time, 'value ' || (auction % 10000) FROM bids;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', date_time: 'BIGINT', value: 'VARCHAR'});
